//! Names as their language writes them.

use std::fmt::{self, Write};

/// The longest name, in bytes; a longer one is cut. Templates' may have any length.
const MAX_NAME: usize = 512;
/// The longest name of a linker that is read.
const MAX_SYMBOL: usize = 16 << 10;

/// A function's name of C++ or Rust without its parameters, and any other name as it is.
pub(crate) fn demangle(symbol: &str) -> String {
    if symbol.len() > MAX_SYMBOL {
        return cut(symbol);
    }
    let mut name = Bounded(String::new());
    // First: its older names contain dots.
    if let Ok(rust) = rustc_demangle::try_demangle(symbol) {
        // Without the hash.
        let _ = write!(name, "{rust:#}");
        return cut(&name.0);
    }
    // A version of a symbol, and a part of a function that a compiler has moved.
    let (symbol, part) = match symbol.split_once(['@', '.']) {
        Some((name, _)) if symbol.contains('@') || name.is_empty() => (name, ""),
        Some((name, part)) if name.starts_with("_Z") => (name, part),
        _ => (symbol, ""),
    };
    if symbol.starts_with("_Z") {
        let options = cpp_demangle::DemangleOptions::new()
            .no_params()
            .no_return_type();
        let demangled = cpp_demangle::BorrowedSymbol::new(symbol.as_bytes());
        if let Ok(cpp) = demangled {
            let written = cpp.structured_demangle(&mut name, &options);
            if written.is_ok() || name.0.len() >= MAX_NAME {
                return cut(&name.0);
            }
        }
        if !part.is_empty() {
            return cut(&format!("{symbol}.{part}"));
        }
    }
    cut(symbol)
}

/// Whether a function only passes a request on to `malloc`: of C++ or of Rust's standard library.
pub(crate) fn is_allocator(name: &str) -> bool {
    const NAMES: [&str; 2] = ["operator new", "operator new[]"];
    const BEGINNINGS: [&str; 12] = [
        "alloc::alloc::",
        "<alloc::alloc::",
        "alloc::raw_vec::",
        "<alloc::raw_vec::",
        "std::alloc::",
        "<std::alloc::",
        "std::sys::alloc::",
        "__rust_",
        "__rustc::",
        "__rdl_",
        "nthbyte_global_alloc::",
        "<nthbyte_global_alloc::",
    ];
    // Template classes, whose method follows.
    const CLASSES: [&str; 4] = [
        "std::allocator<",
        "std::allocator_traits<",
        "std::__new_allocator<",
        "__gnu_cxx::new_allocator<",
    ];
    let begins = |beginnings: &[&str]| beginnings.iter().any(|one| name.starts_with(one));
    NAMES.contains(&name)
        || begins(&BEGINNINGS)
        || (begins(&CLASSES) && name.ends_with("::allocate"))
}

/// Whether a function is one of those that the compiler calls for Rust's global allocator, or makes of its functions.
pub(crate) fn is_global_allocator(name: &str) -> bool {
    let name = name.strip_prefix("__rustc::").unwrap_or(name);
    let called = ["__rust_", "__rdl_", "__rg_"]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix));
    called.is_some_and(|name| ["alloc", "alloc_zeroed", "realloc"].contains(&name))
}

/// Whether a linker's name names a function of C++ or Rust, with its namespace.
pub(crate) fn is_mangled(symbol: &str) -> bool {
    symbol.starts_with("_Z") || symbol.starts_with("_R")
}

/// A text that does not grow without a bound.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > 2 * MAX_NAME {
            let room = 2 * MAX_NAME - self.0.len();
            let end = (0..=room).rev().find(|&end| text.is_char_boundary(end));
            self.0.push_str(&text[..end.unwrap_or(0)]);
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

fn cut(name: &str) -> String {
    if name.len() <= MAX_NAME {
        return name.to_owned();
    }
    let end = (0..=MAX_NAME).rev().find(|&end| name.is_char_boundary(end));
    format!("{}…", &name[..end.unwrap_or(0)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_language() {
        for (symbol, name) in [
            ("PyObject_Malloc", "PyObject_Malloc"),
            ("memcpy@@GLIBC_2.14", "memcpy"),
            (
                "_PyEval_EvalFrameDefault.cold",
                "_PyEval_EvalFrameDefault.cold",
            ),
            ("_ZN3one3twoEi", "one::two"),
            ("_ZN3one3twoEi.part.0", "one::two"),
            (
                "_ZNSt6vectorIiSaIiEE9push_backERKi",
                "std::vector<int, std::allocator<int> >::push_back",
            ),
            (
                "_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE",
                "core::fmt::Write::write_fmt",
            ),
            ("_RNvC6_123foo3bar", "123foo::bar"),
            (
                "_ZN95_$LT$alloc..vec..Vec$LT$T$GT$$u20$as$u20$core..iter..traits..collect..FromIterator$LT$T$GT$$GT$9from_iter17h6fc1668acb14c207E",
                "<alloc::vec::Vec<T> as core::iter::traits::collect::FromIterator<T>>::from_iter",
            ),
            ("_Znonsense", "_Znonsense"),
            ("", ""),
        ] {
            assert_eq!(demangle(symbol), name, "{symbol}");
        }
    }

    #[test]
    fn allocators_are_known_by_name() {
        for (name, expected) in [
            ("operator new", true),
            ("operator new[]", true),
            ("operator newer", false),
            ("std::allocator<int>::allocate", true),
            ("std::allocator<int>::construct", false),
            (
                "<alloc::alloc::Global as core::alloc::Allocator>::allocate",
                true,
            ),
            ("alloc::raw_vec::RawVec<T,A>::with_capacity_in", true),
            ("alloc::vec::Vec<T>::with_capacity", false),
            ("__rustc::__rust_alloc", true),
            (
                "<nthbyte_global_alloc::Sampled<A> as core::alloc::global::GlobalAlloc>::alloc",
                true,
            ),
            ("malloc", false),
        ] {
            assert_eq!(is_allocator(name), expected, "{name}");
        }
    }

    #[test]
    fn long_names_are_cut() {
        assert_eq!(demangle(&"ä".repeat(600)).chars().count(), MAX_NAME / 2 + 1);
        // Each argument is all that came before, twice.
        let mut doubling = String::from("_Z1fI1aIiiE");
        for at in 0..40 {
            let at = char::from_digit(at, 36).unwrap().to_ascii_uppercase();
            doubling.push_str(&format!("1aIS{at}_S{at}_E"));
            if at == 'Z' {
                break;
            }
        }
        doubling.push_str("Evv");
        assert!(demangle(&doubling).len() <= MAX_NAME + 4);
    }
}
