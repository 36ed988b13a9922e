//! `nthbyte amounts`: figures of bytes as all reports write them. It is for the magics of notebooks, and not in the help: so
//! there is one rule.

use std::str::FromStr;

use anyhow::{Context, Result, bail};
use clap::Args;
use nthbyte_report::{Estimate, text};

use crate::output::Output;

/// What `amounts` takes.
#[derive(Args)]
pub struct Arguments {
    /// Bytes, or an estimate with both ends of its interval: `20000` or `20000:18000:22500`.
    amounts: Vec<Amount>,
}

/// A figure in bytes.
#[derive(Clone, Copy)]
struct Amount(Estimate);

impl FromStr for Amount {
    type Err = anyhow::Error;

    fn from_str(word: &str) -> Result<Self> {
        let numbers = word.split(':').map(f64::from_str);
        let numbers: Vec<f64> = numbers.collect::<Result<_, _>>().context("no number")?;
        match numbers[..] {
            [bytes] => Ok(Self(Estimate::exact(bytes))),
            [estimate, low, high] => Ok(Self(Estimate {
                estimate,
                low,
                high,
            })),
            _ => bail!("one number, or three"),
        }
    }
}

impl Amount {
    fn text(self) -> String {
        let Self(amount) = self;
        if amount.low == amount.high {
            text::bytes(amount.estimate)
        } else {
            amount.with_error()
        }
    }
}

impl Arguments {
    /// Prints a line for each.
    ///
    /// # Errors
    /// If standard output cannot be written.
    pub fn run(self) -> Result<()> {
        let lines = self.amounts.into_iter().map(|amount| amount.text() + "\n");
        let lines: String = lines.collect();
        Output::Standard.write(|out| Ok(out.write_all(lines.as_bytes())?))
    }
}
