//! VMProf's names of functions and types.

/// A function's name as VMProf writes it: `py:name:line:file`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Symbol<'a> {
    pub name: &'a str,
    /// Line of the definition; 0 if unknown.
    pub line: u32,
    /// Source file or library; empty if unknown.
    pub file: &'a str,
}

impl<'a> Symbol<'a> {
    /// Splits a symbol. Text of another form is a name as a whole.
    pub fn parse(text: &'a str) -> Self {
        let mut parts = text.splitn(4, ':');
        let (_language, name) = (parts.next(), parts.next());
        match (name, parts.next(), parts.next()) {
            (Some(name), Some(line), Some(file)) => Self {
                name,
                line: line.parse().unwrap_or(0),
                file: if file == "-" { "" } else { file },
            },
            _ => Self {
                name: text,
                line: 0,
                file: "",
            },
        }
    }
}

/// A type of PyPy's collector without its fields: `GcStruct pypy.x.W_Root { super, inst_y }` is
/// `pypy.x.W_Root`.
pub(super) fn short_type(text: &str) -> &str {
    let text = text.split('{').next().unwrap_or(text).trim();
    text.strip_prefix("GcStruct ").unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_split_at_the_first_three_colons() {
        let symbol = Symbol::parse("py:f:12:C:/x:y.py");
        assert_eq!(
            (symbol.name, symbol.line, symbol.file),
            ("f", 12, "C:/x:y.py")
        );
        let native = Symbol::parse("n:malloc:0:-");
        assert_eq!((native.name, native.line, native.file), ("malloc", 0, ""));
        assert_eq!(Symbol::parse("strange").name, "strange");
    }

    #[test]
    fn the_fields_of_types_are_removed() {
        let text = " GcStruct pypy.objspace.W_Int { super, inst_intval }";
        assert_eq!(short_type(text), "pypy.objspace.W_Int");
        assert_eq!(short_type("GcArray of Signed"), "GcArray of Signed");
    }
}
