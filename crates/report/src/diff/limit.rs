//! Limits on growth, for continuous integration.
//!
//! A limit is exceeded only if the whole interval of the growth is above it. So a change below the limit fails
//! in at most one case of 40, for any number of samples, and an unchanged program fails much more rarely.

use std::str::FromStr;

use super::{Change, Diff, DiffRow, Measure};
use crate::text;

/// The largest allowed growth of a row or of the total.
#[derive(Clone, Debug, PartialEq)]
pub struct GrowthLimit {
    /// The name of the row; `None` means the total.
    pub row: Option<String>,
    /// The allowed growth.
    pub growth: Growth,
}

/// An amount of growth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Growth {
    /// As a part of the old value.
    Relative(f64),
    /// A number in this unit.
    Absolute(f64, Unit),
}

/// The unit of an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// The measure's.
    Any,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
}

impl Unit {
    /// Whether a measure has this unit.
    fn fits(self, measure: Measure) -> bool {
        match (self, measure) {
            (Self::Any, _) | (Self::Seconds, Measure::Cpu) => true,
            (Self::Seconds, _) | (Self::Bytes, Measure::Cpu | Measure::Allocations) => false,
            (Self::Bytes, _) => true,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Any => "a number",
            Self::Bytes => "bytes",
            Self::Seconds => "seconds",
        }
    }
}

/// An amount of a measure, as an example.
const fn example(measure: Measure) -> &'static str {
    match measure {
        Measure::Allocations => "+1000",
        Measure::Cpu => "+0.5s",
        _ => "+10MiB",
    }
}

/// The reason why a limit cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum LimitError {
    /// The text is not a valid limit.
    #[error("`{0}` is no limit: write '+5%', '+10MiB' or 'NAME:+5%'")]
    Form(String),
    /// There is no such row.
    #[error("there is no row `{0}` on either side")]
    NoRow(String),
    /// Several rows have this name.
    #[error("{1} rows are called `{0}`: give more of its name, or use --by function")]
    SeveralRows(String, usize),
    /// The amount is not one of the measure.
    #[error("a limit in {0} is not one of {1}: write '+5%', or an amount such as '{2}'")]
    OtherUnit(&'static str, &'static str, &'static str),
    /// The measure is not known on both sides.
    #[error("{0} cannot be compared: both sides must have recorded it")]
    NotKnown(&'static str),
}

/// The result of checking a limit.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitOutcome {
    /// Whether the growth is certainly above the limit.
    pub exceeded: bool,
    /// One line that explains the result.
    pub text: String,
}

impl FromStr for GrowthLimit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        let wrong = || LimitError::Form(text.to_owned());
        let (row, growth) = match text.rsplit_once(':') {
            Some((row, growth)) if !row.is_empty() => (Some(row.to_owned()), growth),
            Some(_) => return Err(wrong()),
            None => (None, text),
        };
        let growth = growth.trim().strip_prefix('+').ok_or_else(wrong)?;
        let end = growth
            .find(|character: char| !character.is_ascii_digit() && character != '.')
            .unwrap_or(growth.len());
        let (number, unit) = growth.split_at(end);
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let growth = match unit.trim() {
            "%" => Growth::Relative(number / 100.0),
            "" => Growth::Absolute(number, Unit::Any),
            "B" => Growth::Absolute(number, Unit::Bytes),
            "s" => Growth::Absolute(number, Unit::Seconds),
            unit => {
                let power = ["KiB", "MiB", "GiB", "TiB"]
                    .iter()
                    .position(|known| *known == unit);
                let power =
                    power.or_else(|| ["K", "M", "G", "T"].iter().position(|known| *known == unit));
                let factor = 1024_f64.powi(power.ok_or_else(wrong)? as i32 + 1);
                Growth::Absolute(number * factor, Unit::Bytes)
            }
        };
        Ok(Self { row, growth })
    }
}

impl Diff {
    /// Checks whether the growth is above the limits of the [`DiffOptions`](super::DiffOptions), in the measure that orders the rows.
    /// Call this before [`Diff::truncate`].
    ///
    /// # Errors
    /// If there is no such row or measure, or if a limit has another unit.
    pub fn check(&self) -> Result<Vec<LimitOutcome>, LimitError> {
        self.limits.iter().map(|limit| limit.check(self)).collect()
    }
}

impl GrowthLimit {
    /// Whether it may be of this row: see [`row`].
    pub(super) fn may_mean(&self, row: &DiffRow) -> bool {
        let name = self.row.as_deref();
        name.is_some_and(|name| row.name.ends_with(name))
    }

    fn check(&self, diff: &Diff) -> Result<LimitOutcome, LimitError> {
        if let Growth::Absolute(_, unit) = self.growth
            && !unit.fits(diff.what)
        {
            let (unit, what) = (unit.name(), diff.what.name());
            return Err(LimitError::OtherUnit(unit, what, example(diff.what)));
        }
        let unknown = || LimitError::NotKnown(diff.what.name());
        let change = match &self.row {
            None => diff.totals.get(&diff.what).ok_or_else(unknown)?,
            Some(name) => row(diff, name)?
                .changes
                .get(diff.what)
                .ok_or_else(unknown)?,
        };
        let beyond = match self.growth {
            Growth::Relative(part) => change.beyond(1.0 + part),
            Growth::Absolute(amount, _) => {
                let mut difference = change.difference;
                for end in [
                    &mut difference.estimate,
                    &mut difference.low,
                    &mut difference.high,
                ] {
                    *end -= amount;
                }
                difference
            }
        };
        let exceeded = beyond.low > 0.0;
        let what = self.row.as_deref().unwrap_or("the total");
        let what = text::fit(what, 100, text::Cut::End);
        let grew = grew(change, diff.what);
        let limit = self.shown(diff.what);
        let text = if exceeded {
            format!("{what} grew by {grew}: more than {limit}")
        } else if beyond.estimate > 0.0 {
            format!(
                "{what} grew by {grew}: perhaps by more than {limit}, but this is not certain; a smaller --every, or several runs of each side, would decide"
            )
        } else {
            format!("{what} did not grow by more than {limit}: {grew}")
        };
        Ok(LimitOutcome { exceeded, text })
    }

    fn shown(&self, measure: Measure) -> String {
        match self.growth {
            Growth::Relative(part) => format!("{}%", (part * 1e6).round() / 1e4),
            Growth::Absolute(amount, _) => super::render::amount(measure, amount),
        }
    }
}

fn row<'a>(diff: &'a Diff, name: &str) -> Result<&'a DiffRow, LimitError> {
    let found: Vec<&DiffRow> = diff.rows.iter().filter(|row| row.name == name).collect();
    // The name without its class or module, if that is unique.
    let ends = |row: &&DiffRow| {
        row.name
            .strip_suffix(name)
            .is_some_and(|rest| rest.ends_with(['.', '/']))
    };
    let found = match found[..] {
        [] => diff.rows.iter().filter(ends).collect(),
        _ => found,
    };
    match found[..] {
        [row] => Ok(row),
        [] => Err(LimitError::NoRow(name.to_owned())),
        _ => Err(LimitError::SeveralRows(name.to_owned(), found.len())),
    }
}

fn grew(change: &Change, measure: Measure) -> String {
    let difference = &change.difference;
    let amount = super::render::signed(measure, difference.estimate);
    let relative = change.relative.map(super::render::relative);
    let interval = match super::sides::is_certain(difference) {
        true => String::new(),
        false => super::render::interval(measure, difference),
    };
    let more: Vec<String> = relative
        .into_iter()
        .chain((!interval.is_empty()).then_some(interval))
        .collect();
    match more.is_empty() {
        true => amount,
        false => format!("{amount} ({})", more.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read() {
        let of = |text: &str| {
            text.parse::<GrowthLimit>()
                .map(|limit| (limit.row, limit.growth))
        };
        assert_eq!(of("+5%"), Ok((None, Growth::Relative(0.05))));
        let bytes = |amount| Ok((None, Growth::Absolute(amount, Unit::Bytes)));
        assert_eq!(of("+10MiB"), bytes(10_485_760.0));
        assert_eq!(of("+1.5K"), bytes(1536.0));
        let seconds = Growth::Absolute(1.5, Unit::Seconds);
        assert_eq!(of("+1.5s"), Ok((None, seconds)));
        assert_eq!(of("+7"), Ok((None, Growth::Absolute(7.0, Unit::Any))));
        let named = of("C.parse:+0.5%");
        assert_eq!(
            named,
            Ok((Some("C.parse".to_owned()), Growth::Relative(0.005)))
        );
        for wrong in [
            "", "5%", "+", "+5x", "-5%", ":+5%", "+5%%", "+1e5", "parse:5",
        ] {
            assert_eq!(of(wrong), Err(LimitError::Form(wrong.to_owned())));
        }
    }

    #[test]
    fn a_limit_has_the_unit_of_the_measure() {
        for measure in Measure::ALL {
            assert!(Unit::Any.fits(measure));
            assert_eq!(Unit::Seconds.fits(measure), measure == Measure::Cpu);
            let is_bytes = !matches!(measure, Measure::Cpu | Measure::Allocations);
            assert_eq!(Unit::Bytes.fits(measure), is_bytes);
            let own: GrowthLimit = example(measure).parse().expect("a limit");
            assert!(matches!(own.growth, Growth::Absolute(_, unit) if unit.fits(measure)));
        }
    }
}
