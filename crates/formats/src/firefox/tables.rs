//! What tables are made of: columns whose values are computed while they are serialised.

use serde::ser::{Serialize, SerializeMap, Serializer};

/// An array that is serialised from an iterator. Each serialisation makes a new iterator.
pub(super) struct Column<F>(pub F);

impl<F, I> Serialize for Column<F>
where
    F: Fn() -> I,
    I: IntoIterator,
    I::Item: Serialize,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((self.0)())
    }
}

/// An array that repeats one value.
pub(super) fn same<T: Serialize + Copy>(value: T, len: usize) -> impl Serialize {
    Column(move || std::iter::repeat_n(value, len))
}

/// Writes the entries of a JSON object, then its end.
pub(super) fn object<S: Serializer>(
    serializer: S,
    entries: impl FnOnce(&mut S::SerializeMap) -> Result<(), S::Error>,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    entries(&mut map)?;
    map.end()
}
