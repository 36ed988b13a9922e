//! Python's names of RPython types. docs/pypy.md has the same table.

/// Pairs of RPython's name without its module, and Python's name.
const NAMES: &[(&str, &str)] = &[
    // Numbers.
    ("W_IntObject", "int"),
    ("W_LongObject", "int"),
    ("rbigint", "int digits"),
    ("W_BoolObject", "bool"),
    ("W_FloatObject", "float"),
    ("W_ComplexObject", "complex"),
    // Text and bytes.
    ("W_UnicodeObject", "str"),
    ("W_BytesObject", "bytes"),
    ("W_BytearrayObject", "bytearray"),
    ("W_MemoryView", "memoryview"),
    ("rpy_string", "text or bytes"),
    ("rpy_unicode", "text"),
    ("stringbuilder", "text under construction"),
    ("stringpiece", "text under construction"),
    // Containers.
    ("W_ListObject", "list"),
    ("W_TupleObject", "tuple"),
    ("W_SpecialisedTupleObject_ii", "tuple"),
    ("W_SpecialisedTupleObject_ff", "tuple"),
    ("W_SpecialisedTupleObject_oo", "tuple"),
    ("W_DictObject", "dict"),
    ("W_ModuleDictObject", "module dict"),
    ("W_SetObject", "set"),
    ("W_FrozensetObject", "frozenset"),
    ("W_DictProxyObject", "mappingproxy"),
    ("W_DictViewItemsObject", "dict_items"),
    ("W_DictViewKeysObject", "dict_keys"),
    ("W_DictViewValuesObject", "dict_values"),
    ("W_Deque", "collections.deque"),
    ("W_SliceObject", "slice"),
    ("dicttable", "dict or set table"),
    ("dictiter", "dict iterator"),
    ("list", "list storage"),
    ("listiter", "list iterator"),
    ("GcArray of * object", "list items"),
    ("GcArray of * GcStruct object", "list items"),
    ("GcArray of Signed", "list of int items"),
    ("GcArray of Float", "list of float items"),
    ("GcArray of Char", "bytearray items"),
    ("GcArray of UCHAR", "dict index"),
    ("GcArray of USHORT", "dict index"),
    ("GcArray of UINT", "dict index"),
    ("GcArray of odictentry", "dict entries"),
    ("GcArray of * GcStruct rpy_string", "list of str items"),
    // Instances.
    ("W_ObjectObject", "object"),
    ("W_ObjectObjectUserDictWeakrefable", "instance"),
    ("W_TypeObject", "type"),
    ("W_NoneObject", "NoneType"),
    ("GCREFs", "instance attributes"),
    ("GcArray of * GCREF (gcopaque)", "instance attributes"),
    ("UnboxedPlainAttribute", "instance layout"),
    ("PlainAttribute", "instance layout"),
    // Iterators.
    ("W_SeqIterObject", "iterator"),
    ("W_FastListIterObject", "list_iterator"),
    ("W_FastTupleIterObject", "tuple_iterator"),
    ("W_FastUnicodeIterObject", "str_iterator"),
    ("W_ReverseSeqIterObject", "reversed"),
    ("W_IntRangeIterator", "range_iterator"),
    ("W_IntRangeOneArgIterator", "range_iterator"),
    ("W_IntRangeStepOneIterator", "range_iterator"),
    ("W_LongRangeIterator", "range_iterator"),
    ("W_Range", "range"),
    ("W_Enumerate", "enumerate"),
    ("W_Filter", "filter"),
    ("W_Map", "map"),
    ("W_Zip", "zip"),
    ("W_ReversedIterator", "reversed"),
    ("W_SetIterObject", "set_iterator"),
    ("W_DictMultiIterItemsObject", "dict_itemiterator"),
    ("W_DictMultiIterKeysObject", "dict_keyiterator"),
    ("W_DictMultiIterValuesObject", "dict_valueiterator"),
    // Functions and frames.
    ("Function", "function"),
    ("FunctionWithFixedCode", "builtin_function_or_method"),
    ("BuiltinFunction", "builtin_function_or_method"),
    ("_Method", "method"),
    ("Method", "method"),
    ("StaticMethod", "staticmethod"),
    ("ClassMethod", "classmethod"),
    ("W_Property", "property"),
    ("W_Super", "super"),
    ("Cell", "cell"),
    ("PyCode", "code"),
    ("PyFrame", "frame"),
    ("StdObjSpaceFrame", "frame"),
    ("FrameDebugData", "frame"),
    ("PyTraceback", "traceback"),
    ("GeneratorIterator", "generator"),
    ("GeneratorIteratorWithDel", "generator"),
    ("Coroutine", "coroutine"),
    ("AsyncGenerator", "async_generator"),
    ("Arguments", "call arguments"),
    ("Module", "module"),
    ("OperationError", "exception in flight"),
    ("W_BaseException", "BaseException"),
    ("weakref", "weak reference"),
    ("W_Weakref", "weakref"),
    // The compiler's own objects.
    ("JITFRAME", "JIT frame"),
    ("JitVirtualRef", "JIT reference"),
];

/// The Python name of an RPython type: from the table, by rule, or RPython's own name.
#[must_use]
pub fn python_name(native: &str) -> String {
    let last = if native.contains(' ') {
        native
    } else {
        native.rsplit('.').next().unwrap_or(native)
    };
    if let Some(name) = known(last) {
        return name.to_owned();
    }
    if native.starts_with("rpython.jit.") {
        return format!("JIT compiler: {last}");
    }
    if native.starts_with("pypy.interpreter.astcompiler.")
        || native.starts_with("pypy.interpreter.pyparser.")
    {
        return format!("compiler: {last}");
    }
    let base = ["UserDictWeakrefable", "UserWeakrefable", "UserDict", "User"]
        .iter()
        .find_map(|suffix| last.strip_suffix(suffix));
    if let Some(base) = base.filter(|_| native.starts_with("pypy.interpreter.typedef.")) {
        let base = known(base).map_or_else(|| plain(base).to_owned(), str::to_owned);
        return format!("instance of a subclass of {base}");
    }
    if native.starts_with("pypy.") {
        plain(last).to_owned()
    } else {
        last.to_owned()
    }
}

/// Whether Python can have objects of an RPython type: they are not inside of others.
#[must_use]
pub fn is_of_python(native: &str) -> bool {
    const OTHERS: [&str; 16] = [
        "Function",
        "FunctionWithFixedCode",
        "BuiltinFunction",
        "_Method",
        "Method",
        "StaticMethod",
        "ClassMethod",
        "PyFrame",
        "StdObjSpaceFrame",
        "PyTraceback",
        "GeneratorIterator",
        "GeneratorIteratorWithDel",
        "Coroutine",
        "AsyncGenerator",
        "Module",
        "Local",
    ];
    let last = native.rsplit('.').next().unwrap_or(native);
    let is_plain = !native.contains(' ') && native.starts_with("pypy.");
    is_plain
        && (last.starts_with("W_")
            || OTHERS.contains(&last)
            || native.starts_with("pypy.interpreter.typedef."))
}

/// Whether objects of an RPython type only remember what others hold: the values of global variables that a code object uses,
/// and the last methods that were looked up.
#[must_use]
pub fn is_cache(native: &str) -> bool {
    let last = native.rsplit('.').next().unwrap_or(native);
    ["GlobalCache", "MethodCache", "MapAttrCache"].contains(&last)
}

/// Whether objects of an RPython type are the compiler's.
#[must_use]
pub fn is_compiled(native: &str) -> bool {
    native.starts_with("rpython.jit.")
}

fn known(last: &str) -> Option<&'static str> {
    NAMES
        .iter()
        .find(|(native, _)| *native == last)
        .map(|&(_, name)| name)
}

/// Converts `W_CountObject` to `Count`.
fn plain(name: &str) -> &str {
    let name = name.strip_prefix("W_").unwrap_or(name);
    name.strip_suffix("Object")
        .filter(|rest| !rest.is_empty())
        .unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::{is_cache, is_compiled, is_of_python, python_name};

    #[test]
    fn names_are_python_s() {
        for (native, name) in [
            ("pypy.objspace.std.intobject.W_IntObject", "int"),
            ("pypy.objspace.std.tupleobject.W_TupleObject", "tuple"),
            ("GcArray of * GcStruct object", "list items"),
            (
                "pypy.interpreter.typedef.W_ObjectObjectUserDictWeakrefable",
                "instance",
            ),
            (
                "pypy.interpreter.typedef.W_ListObjectUserDictWeakrefable",
                "instance of a subclass of list",
            ),
            (
                "rpython.jit.metainterp.history.TreeLoop",
                "JIT compiler: TreeLoop",
            ),
            ("pypy.module.itertools.interp_itertools.W_Count", "Count"),
            ("something", "something"),
        ] {
            assert_eq!(python_name(native), name);
        }
    }

    #[test]
    fn what_python_can_have_is_told_from_what_is_inside_of_it_and_from_caches() {
        let of_python = [
            "pypy.objspace.std.listobject.W_ListObject",
            "pypy.interpreter.typedef.W_ObjectObjectUserDictWeakrefable",
            "pypy.interpreter.function.Function",
        ];
        let inside = [
            "pypy.interpreter.nestedscope.Cell",
            "pypy.objspace.std.celldict.ModuleDictStrategy",
            "GcArray of * GcStruct object",
        ];
        assert!(of_python.into_iter().all(is_of_python));
        let cache = "pypy.objspace.std.celldict.GlobalCache";
        let compiled = "rpython.jit.metainterp.history.TreeLoop";
        for native in inside.into_iter().chain([cache, compiled]) {
            assert!(!is_of_python(native), "{native}");
            assert_eq!(is_cache(native), native == cache);
            assert_eq!(is_compiled(native), native == compiled);
        }
    }

    #[test]
    fn each_native_name_is_listed_once() {
        let mut natives: Vec<_> = super::NAMES.iter().map(|(native, _)| native).collect();
        natives.sort_unstable();
        let all = natives.len();
        natives.dedup();
        assert_eq!(natives.len(), all);
    }
}
