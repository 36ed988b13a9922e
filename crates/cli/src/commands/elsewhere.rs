//! Commands that the Python launcher does, for they run inside the interpreter that is profiled.

use anyhow::{Result, bail};
use clap::Args;

/// Anything. The launcher parses it; here it is only for `--help`.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct Words {
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "WORDS"
    )]
    words: Vec<String>,
}

impl Words {
    /// Says how to call it, for whoever started this binary and not the command `nthbyte`.
    ///
    /// # Errors
    /// Always.
    pub fn refuse(self, command: &str) -> Result<()> {
        let words = self.words.join(" ");
        bail!(
            "{command} needs the interpreter that is to be profiled: python3 -m nthbyte {command} {words}"
        )
    }
}
