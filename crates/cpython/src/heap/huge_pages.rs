//! Huge pages for the heap: the kind that the user wants, and whether the administrator allows them.

use nthbyte_heap::HugePages;
use nthbyte_session::Config;

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
