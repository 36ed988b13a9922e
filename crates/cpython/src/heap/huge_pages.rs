//! Huge pages for the heap: the kind that the user wants, whether the administrator allows them, and when to collapse
//! memory that is already in use. A collapse makes a long-running program faster without more memory.

use std::ffi::c_void;

use nthbyte_heap::{Heap, HugePages};
use nthbyte_profile::event::Nanos;
use nthbyte_session::Config;

/// The time between two collapses. Each takes about a millisecond.
const PAUSE: Nanos = Nanos(50_000_000);
/// The time until the next try, if there was nothing to collapse.
const LONG_PAUSE: Nanos = Nanos(400_000_000);
/// The file that says whether the administrator allows transparent huge pages. `MADV_COLLAPSE` ignores the setting.
const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// The kind of huge pages that the configuration asks for, or the default.
///
/// # Errors
/// One line if the name is unknown.
pub fn from_config(config: &Config) -> Result<HugePages, String> {
    let Some(name) = &config.huge_pages else {
        return Ok(HugePages::default());
    };
    name.parse()
        .map_err(|_| format!("huge pages: 'thp', 'hugetlb' or 'off', not '{name}'"))
}

/// Whether the administrator forbids transparent huge pages.
pub fn are_forbidden() -> bool {
    std::fs::read_to_string(ENABLED).is_ok_and(|text| text.contains("[never]"))
}

/// The time of the heap's next collapse.
#[derive(Default)]
pub struct CollapseTimer {
    due: Option<Nanos>,
}

impl CollapseTimer {
    /// Starts again, because the times of a new session have another origin.
    pub const fn reset(&mut self) {
        self.due = None;
    }

    /// Collapses one arena of the heap if the time has come and an arena is ready.
    ///
    /// # Safety
    /// `heap` is the context of a heap that no other thread uses now.
    pub unsafe fn collapse_if_due(&mut self, now: Nanos, heap: *mut c_void) {
        let pause = match self.due {
            Some(due) if now.0 < due.0 => return,
            // SAFETY: by the contract.
            Some(_) if !unsafe { Heap::collapse(heap.cast()) } => LONG_PAUSE,
            _ => PAUSE,
        };
        self.due = Some(Nanos(now.0.saturating_add(pause.0)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_the_configuration_are_those_of_the_heap() {
        let config = |name: &str| {
            let json =
                format!(r#"{{"output": "/x", "period": 64, "distances": "exponential"{name}}}"#);
            from_config(&Config::parse(&json).expect("a configuration"))
        };
        assert_eq!(config(""), Ok(HugePages::Thp));
        for (name, expected) in [
            ("thp", HugePages::Thp),
            ("hugetlb", HugePages::Hugetlb),
            ("off", HugePages::Off),
        ] {
            let name = format!(r#", "huge_pages": "{name}""#);
            assert_eq!(config(&name), Ok(expected));
        }
        assert!(config(r#", "huge_pages": "big""#).is_err());
    }
}
