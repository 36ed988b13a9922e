//! Commands that the Python launcher implements, since they run inside the interpreter that is profiled.

use anyhow::{Result, bail};
use clap::Args;

/// Any arguments. The launcher parses them; here they only make the command appear in `--help`.
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
    /// Explains how to call it, when this binary was started instead of the launcher.
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
