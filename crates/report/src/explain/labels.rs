//! For whom: which value of a label allocates most, and which has most alive at the peak.

use nthbyte_profile::event::{LabelSetId, SampleId};
use nthbyte_profile::{AWAITED_BY, Profile, TASK};

use super::{Answer, Facts, NEXT, Topic, WORTH_NAMING, of_bytes, weight};
use crate::estimate::{Estimate, Estimator, Totals};
use crate::selection::{Alive, Moment};
use crate::text;

/// Columns of a value that is named.
const NAMED: usize = 48;

/// A value of a key, `None` for none, and its bytes.
type OfValue<'a> = (Option<&'a str>, Estimate);

/// Of the key whose labels have most bytes.
pub(super) fn answer(facts: &Facts<'_>) -> Option<Answer> {
    let profile = facts.profile;
    if profile.label_keys().is_empty() {
        return None;
    }
    let sums = by_set(profile, |id| Some(facts.places.totals(id)));
    let estimator = &facts.aggregate.estimator;
    let labelled = |values: &[OfValue<'_>]| {
        let values = values.iter().filter(|(value, _)| value.is_some());
        values.map(|(_, bytes)| bytes.estimate).sum::<f64>()
    };
    // No process has more.
    let keys = profile.label_keys().into_iter().take(64);
    let keys = keys.map(|key| (key, by_value(profile, key, &sums, estimator)));
    // What all samples have, such as a tag of the process, distinguishes nothing.
    let keys = keys.filter(|(_, values)| values.len() > 1);
    // Labels that the program sets count for more than `task`, which comes by itself. Of equal ones, the first.
    let (key, values) = keys
        .rev()
        .filter(|(key, values)| {
            let says_nothing = *key == AWAITED_BY || *key == TASK && named(values).len() < 2;
            !says_nothing && labelled(values) >= WORTH_NAMING * facts.estimate
        })
        .max_by(|(one_key, one), (other_key, other)| {
            let by_key = (*other_key == TASK).cmp(&(*one_key == TASK));
            by_key.then(labelled(one).total_cmp(&labelled(other)))
        })?;
    let command = format!("label:{key}");
    let at_peak = at_peak(facts, key);
    let mut answer = facts.answer(
        Topic::Labels,
        weight::LABELS,
        &["summary", "--by", &command],
    );
    let named: Vec<(&str, Estimate)> = named(&values);
    let (first, bytes) = *named.first()?;
    let key = text::fit(key, NAMED, text::Cut::End);
    let than = match is_clear(&named) {
        true => format!(", more than any other {key}"),
        false if named.len() > 1 => ", about as much as the next".to_owned(),
        false => String::new(),
    };
    answer.say(format!(
        "{key} {} pays for {}, {} of all bytes{than}.",
        fit(first),
        of_bytes(&bytes),
        facts.share(bytes.estimate)
    ));
    answer.figure("bytes", bytes);
    if let Some((value, alive)) = at_peak {
        answer.say(format!(
            "Most of what was alive at the peak is of {}: {}.",
            if value == first {
                "it, too".to_owned()
            } else {
                fit(&value)
            },
            of_bytes(&alive)
        ));
        answer.figure("alive_bytes", alive);
    }
    let next = named.iter().skip(1).take(NEXT);
    let next = next.filter(|(_, bytes)| bytes.estimate >= WORTH_NAMING * facts.estimate);
    let next: Vec<String> = next
        .map(|(value, bytes)| format!("{} {}", fit(value), of_bytes(bytes)))
        .collect();
    if !next.is_empty() {
        answer.say(format!("Next: {}.", next.join("; ")));
    }
    let none = values.iter().find(|(value, _)| value.is_none());
    if let Some((_, none)) = none.filter(|(_, none)| none.estimate >= WORTH_NAMING * facts.estimate)
    {
        answer.say(format!(
            "{} of all bytes have no {key}.",
            facts.share(none.estimate)
        ));
        answer.figure("unlabelled_bytes", *none);
    }
    Some(answer)
}

fn fit(value: &str) -> String {
    text::fit(value, NAMED, text::Cut::End)
}

/// The value with most alive at the peak, if it certainly has.
fn at_peak(facts: &Facts<'_>, key: &str) -> Option<(String, Estimate)> {
    let alive = Alive::at(facts.profile, Moment::Found(facts.peak?));
    let estimator = alive.estimator(&facts.aggregate.estimator);
    let sums = by_set(facts.profile, |id| alive.totals(id));
    let values = by_value(facts.profile, key, &sums, &estimator);
    let named = named(&values);
    let (value, bytes) = *named.first()?;
    // What has no label may have more.
    let none = values.iter().find(|(value, _)| value.is_none());
    let is_most = none.is_none_or(|(_, none)| none.high < bytes.low);
    (is_most && is_clear(&named)).then(|| (value.to_owned(), bytes))
}

/// The sums of samples that count, by label set.
fn by_set<'t>(profile: &Profile, counts: impl Fn(SampleId) -> Option<&'t Totals>) -> Vec<Totals> {
    let mut sums = vec![Totals::default(); profile.label_sets.len()];
    for id in profile.samples.ids() {
        let set = profile.samples.labels(id).index();
        if let (Some(sum), Some(totals)) = (sums.get_mut(set), counts(id)) {
            sum.add(totals);
        }
    }
    sums
}

/// The bytes of each value of a key that has any.
fn by_value<'a>(
    profile: &'a Profile,
    key: &str,
    sums: &[Totals],
    estimator: &Estimator,
) -> Vec<OfValue<'a>> {
    let values = profile.label_values(key);
    let mut totals = vec![Totals::default(); values.values.len() + 1];
    for (set, sum) in (0..).zip(sums) {
        let value = values.of(LabelSetId(set)).unwrap_or(values.values.len());
        totals[value].add(sum);
    }
    let names = values.values.into_iter().map(Some).chain([None]);
    let all = names.zip(totals).filter(|(_, sum)| sum.samples > 0);
    all.map(|(name, sum)| (name, estimator.bytes(&sum)))
        .collect()
}

/// The values, the largest first.
fn named<'a>(values: &[OfValue<'a>]) -> Vec<(&'a str, Estimate)> {
    let named = values
        .iter()
        .filter_map(|&(value, bytes)| Some((value?, bytes)));
    let mut named: Vec<(&str, Estimate)> = named.collect();
    named.sort_by(|one, other| {
        let bytes = other.1.estimate.total_cmp(&one.1.estimate);
        bytes.then(one.0.cmp(other.0))
    });
    named
}

/// Whether the first one certainly has most.
fn is_clear(named: &[(&str, Estimate)]) -> bool {
    named.len() > 1
        && named[1..]
            .iter()
            .all(|(_, other)| other.high < named[0].1.low)
}
