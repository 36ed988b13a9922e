//! The settings of the session, from the environment. They are taken out of it, and `LD_PRELOAD` gets its old value, so
//! that the programs that this one starts are as without nthbyte.

use std::ffi::{CStr, CString, c_char};

use nthbyte_session::Config;
use serde::Deserialize;

/// The variable with the settings, as JSON.
const SETTINGS: &[u8] = b"NTHBYTE_PROGRAM=";
const PRELOAD: &[u8] = b"LD_PRELOAD=";

/// What `nthbyte run` says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramSettings {
    /// The session's settings.
    pub session: Config,
    /// Whether a profile of the same name is replaced.
    pub force: bool,
    /// Whether nothing is printed at the end.
    pub quiet: bool,
    /// The value of `LD_PRELOAD` without nthbyte; `None` if it is not set.
    preload: Option<CString>,
}

/// Takes the settings out of the environment. `None` if there are none: then nothing is changed.
///
/// # Errors
/// One line that says why they are wrong.
///
/// # Safety
/// An array of strings that ends with a null pointer, or null. Nobody else uses it at the moment.
pub unsafe fn take(environment: *mut *mut c_char) -> Option<Result<ProgramSettings, String>> {
    // SAFETY: by the contract.
    unsafe {
        let (place, value) = find(environment, SETTINGS)?;
        let text = CStr::from_ptr(value).to_bytes();
        let settings = serde_json::from_slice::<ProgramSettings>(text)
            .map_err(|error| format!("bad settings of nthbyte run: {error}"))
            .and_then(|settings| settings.session.check().map(|()| settings));
        remove(place);
        if let Ok(settings) = &settings {
            restore_preload(environment, settings.preload.as_deref());
        }
        Some(settings)
    }
}

/// Gives `LD_PRELOAD` its old value, which is shorter: nthbyte's libraries come before it.
///
/// # Safety
/// As for [`take`].
unsafe fn restore_preload(environment: *mut *mut c_char, before: Option<&CStr>) {
    // SAFETY: by the contract. The string is the process's own, and the new text is not longer than the old.
    unsafe {
        let Some((place, now)) = find(environment, PRELOAD) else {
            return;
        };
        match before {
            None => remove(place),
            Some(before) => {
                let bytes = before.to_bytes_with_nul();
                if bytes.len() <= CStr::from_ptr(now).to_bytes_with_nul().len() {
                    now.copy_from_nonoverlapping(before.as_ptr(), bytes.len());
                }
            }
        }
    }
}

/// The place of a variable, and its value. `name` ends with the equals sign.
///
/// # Safety
/// As for [`take`].
unsafe fn find(
    environment: *mut *mut c_char,
    name: &[u8],
) -> Option<(*mut *mut c_char, *mut c_char)> {
    if environment.is_null() {
        return None;
    }
    let mut place = environment;
    // SAFETY: by the contract.
    unsafe {
        while !(*place).is_null() {
            if CStr::from_ptr(*place).to_bytes().starts_with(name) {
                return Some((place, (*place).add(name.len())));
            }
            place = place.add(1);
        }
    }
    None
}

/// Removes the variable at this place.
///
/// # Safety
/// A place in the array of [`take`].
unsafe fn remove(mut place: *mut *mut c_char) {
    // SAFETY: by the contract: the array goes on to its null pointer.
    unsafe {
        while !(*place).is_null() {
            *place = *place.add(1);
            place = place.add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: &str = r#"{"output": "/x.nthb", "period": 524288, "distances": "exponential"}"#;

    /// Takes the settings out of an environment. Returns them, and the variables that are left.
    fn taken(variables: &[&str]) -> (Option<Result<ProgramSettings, String>>, Vec<String>) {
        let copy = |text: &&str| {
            let text = CString::new(*text).unwrap();
            // SAFETY: a C string.
            unsafe { libc::strdup(text.as_ptr()) }
        };
        let strings: Vec<*mut c_char> = variables.iter().map(copy).collect();
        let mut array = strings.clone();
        array.push(std::ptr::null_mut());
        // SAFETY: an array as the function wants it. The strings are freed once.
        unsafe {
            let settings = take(array.as_mut_ptr());
            let left = array.iter().take_while(|text| !text.is_null());
            let left = left.map(|&text| CStr::from_ptr(text).to_str().unwrap().to_owned());
            let left = left.collect();
            for text in strings {
                libc::free(text.cast());
            }
            (settings, left)
        }
    }

    #[test]
    fn the_environment_is_as_before() {
        for (preload, expected) in [
            ("null", None),
            (r#""other.so""#, Some("LD_PRELOAD=other.so")),
        ] {
            let text = format!(
                r#"NTHBYTE_PROGRAM={{"session": {SESSION}, "force": true, "quiet": true, "preload": {preload}}}"#
            );
            let (settings, left) = taken(&["A=1", &text, "LD_PRELOAD=/nth.so:other.so", "B=2"]);
            let settings = settings.unwrap().unwrap();
            assert!(settings.quiet);
            assert_eq!(settings.session.period, 524_288);
            let mut all = vec!["A=1"];
            all.extend(expected);
            all.push("B=2");
            assert_eq!(left, all);
        }
    }

    #[test]
    fn without_settings_nothing_changes() {
        let variables = ["NTHBYTE_PROGRAMS={}", "LD_PRELOAD=/nth.so"];
        let (settings, left) = taken(&variables);
        assert!(settings.is_none());
        assert_eq!(left, variables);
    }

    #[test]
    fn wrong_settings_are_refused_in_one_line() {
        for wrong in ["", "{}", r#"{"session": {}, "quiet": 1, "preload": null}"#] {
            let (settings, left) = taken(&[&format!("NTHBYTE_PROGRAM={wrong}")]);
            let error = settings.unwrap().unwrap_err();
            assert!(!error.contains('\n'), "{error}");
            assert!(left.is_empty());
        }
    }
}
