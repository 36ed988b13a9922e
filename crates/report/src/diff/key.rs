//! The identity of a row.

/// The identity of a row on one side.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct RowKey {
    /// Function, file or type.
    pub(super) name: String,
    pub(super) file: String,
    /// First line of the function; 0 if there is none.
    pub(super) first_line: u32,
    /// With [`By::Line`], the line that ran.
    pub(super) line: u32,
}

impl RowKey {
    pub(super) fn named(name: &str) -> Self {
        (name, "", 0, 0).into()
    }
}

/// A key in a profile: name, file, first line and line.
pub(super) type Borrowed<'a> = (&'a str, &'a str, u32, u32);

impl From<Borrowed<'_>> for RowKey {
    fn from((name, file, first_line, line): Borrowed<'_>) -> Self {
        Self {
            name: name.to_owned(),
            file: file.to_owned(),
            first_line,
            line,
        }
    }
}
