//! The rest of a recording's parts whose samples were dropped (`nthbyte run --keep`): sums by function and type.

use std::collections::HashMap;
use std::hash::Hash;

use nthbyte_profile::Profile;
use nthbyte_profile::segment::PartSum;
use serde::Serialize;

use crate::text;

/// What was allocated then, of all processes together. docs/summary-json.md describes its JSON form.
#[derive(Clone, Debug, Serialize)]
pub struct Dropped {
    /// When the first part that has sums began, and when the last one ended, in nanoseconds since the start of the session.
    pub since_nanos: u64,
    /// See above.
    pub until_nanos: u64,
    /// All of it.
    pub all: PartSum,
    /// Of functions by name and file; those with most of each part.
    pub functions: Vec<Of>,
    /// The same of types.
    pub types: Vec<Of>,
}

/// The sum of a function or a type.
#[derive(Clone, Debug, Serialize)]
pub struct Of {
    /// Its name.
    pub name: String,
    /// The file of a function.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub file: String,
    /// What was allocated.
    #[serde(flatten)]
    pub sum: PartSum,
}

impl Dropped {
    /// `None` if nothing was dropped, or no sums are left of it.
    pub(super) fn of(profile: &Profile) -> Option<Self> {
        let parts = || profile.processes.iter().flat_map(|of| &of.sums);
        let since = parts().map(|of| of.since.0).min()?;
        let until = parts().map(|of| of.until.0).max()?;
        let mut all = PartSum::default();
        parts().for_each(|of| all.add(&of.all));
        let functions = parts().flat_map(|of| &of.functions);
        let functions = functions.map(|(name, file, sum)| ((name.as_str(), file.as_str()), sum));
        let types = parts().flat_map(|of| &of.types);
        let types = types.map(|(name, sum)| ((name.as_str(), ""), sum));
        Some(Self {
            since_nanos: since,
            until_nanos: until,
            all,
            functions: largest_first(functions),
            types: largest_first(types),
        })
    }

    /// In sentences.
    pub(super) fn describe(&self) -> String {
        let first = |of: &[Of]| {
            let of = of.iter().take(3).map(|one| {
                let share = text::percent(one.sum.bytes / self.all.bytes.max(1.0));
                format!("{} {share}", text::fit(&one.name, 60, text::Cut::Start))
            });
            of.collect::<Vec<_>>().join(", ")
        };
        let mut said = format!(
            "from {} to {} only sums are kept: {} allocated",
            text::duration(self.since_nanos),
            text::duration(self.until_nanos),
            text::bytes(self.all.bytes),
        );
        for of in [&self.functions, &self.types] {
            if !of.is_empty() {
                said += &format!("; {}", first(of));
            }
        }
        said
    }
}

fn largest_first<'a>(sums: impl Iterator<Item = ((&'a str, &'a str), &'a PartSum)>) -> Vec<Of> {
    let mut rows: Vec<Of> = added_up(sums)
        .into_iter()
        .map(|((name, file), sum)| Of {
            name: name.to_owned(),
            file: file.to_owned(),
            sum,
        })
        .collect();
    rows.sort_by(|one, other| {
        let by_name = || (&one.name, &one.file).cmp(&(&other.name, &other.file));
        other.sum.bytes.total_cmp(&one.sum.bytes).then_with(by_name)
    });
    rows
}

fn added_up<'a, K: Eq + Hash>(sums: impl Iterator<Item = (K, &'a PartSum)>) -> HashMap<K, PartSum> {
    let mut all: HashMap<K, PartSum> = HashMap::new();
    for (key, sum) in sums {
        all.entry(key).or_default().add(sum);
    }
    all
}
