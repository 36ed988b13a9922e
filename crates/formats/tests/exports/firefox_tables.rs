//! What the Firefox Profiler's page shows of the profile as a whole: packages to collapse, colours of collections, and nothing of a
//! browser.

use std::collections::BTreeMap;

use nthbyte_profile::SourceKind;
use nthbyte_profile::event::{Collection, CollectionKind, FrameKind, MajorPhase, Nanos, ThreadId};
use nthbyte_profile::model::TypeNames;

use super::firefox::{changed, check_table, export, list, numbers};
use super::profile;

#[test]
fn functions_of_a_package_are_one_resource() {
    let installed = "/venv/lib/python3.11/site-packages";
    let package = [
        (
            format!("{installed}/docutils/statemachine.py"),
            Some("docutils"),
        ),
        (
            format!("{installed}/docutils/parsers/rst/states.py"),
            Some("docutils"),
        ),
        (format!("{installed}/six.py"), Some("six")),
        (
            "/usr/lib/python3.11/json/decoder.py".to_owned(),
            Some("Python's library"),
        ),
        ("/srv/app/app.py".to_owned(), Some("app.py")),
        ("<string>".to_owned(), None),
        (
            format!("{installed}/numpy/_core/_umath.cpython-311-x86_64-linux-gnu.so"),
            Some("_umath.cpython-311-x86_64-linux-gnu.so"),
        ),
    ];
    let mut before = 0;
    let file = changed(|profile| {
        before = profile.functions.len();
        let frame = profile.frames[0];
        for (at, (path, _)) in package.iter().enumerate() {
            let mut function = profile.functions[0].clone();
            function.file.clone_from(path);
            profile.functions.push(function);
            let mut frame = frame;
            frame.function = (before + at) as u32;
            if path.ends_with(".so") {
                frame.kind = FrameKind::Native;
            }
            profile.frames.push(frame);
        }
    });
    let shared = &file["shared"];
    let table = &shared["resourceTable"];
    check_table(table);
    // A library; the other kinds are for web pages.
    assert!(numbers(&table["type"]).iter().all(|&kind| kind == 1));
    let of_function = list(&shared["funcTable"]["resource"]);
    let text = |index: usize| shared["stringArray"][index].as_str().unwrap();
    let names: Vec<&str> = numbers(&table["name"]).into_iter().map(text).collect();
    for (at, (path, expected)) in package.iter().enumerate() {
        let resource = of_function[before + at].as_i64().unwrap();
        let found = usize::try_from(resource).ok().map(|at| names[at]);
        assert_eq!(found, *expected, "{path}");
    }
    // A package is one row, so that all its functions collapse at once.
    let rows: BTreeMap<&str, usize> = names.iter().fold(BTreeMap::new(), |mut rows, name| {
        *rows.entry(*name).or_default() += 1;
        rows
    });
    assert!(rows.values().all(|&rows| rows == 1), "{rows:?}");
    // Types belong to none.
    let types = &of_function[before + package.len()..];
    assert!(!types.is_empty() && types.iter().all(|of| of == -1));
}

#[test]
fn collections_are_coloured_by_generation_and_cost() {
    let kinds = [
        (CollectionKind::Generation(0), "teal"),
        (CollectionKind::Generation(1), "blue"),
        (CollectionKind::Generation(2), "orange"),
        (CollectionKind::Minor, "teal"),
        (CollectionKind::MajorStep(MajorPhase::Marking), "orange"),
        (CollectionKind::Major, "purple"),
    ];
    let mut expected = Vec::new();
    let file = changed(|profile| {
        profile.collections.clear();
        for (kind, color) in kinds {
            for millis in [1, 9, 10, 50] {
                profile.collections.push(Collection {
                    start: Nanos(expected.len() as u64 * 100_000_000),
                    duration: Nanos(millis * 1_000_000),
                    thread: ThreadId(0),
                    kind,
                    freed_objects: None,
                    bytes_before: None,
                    bytes_after: None,
                });
                // The program runs between the steps of a major collection.
                let stops = kind != CollectionKind::Major;
                expected.push(if stops && millis >= 10 { "red" } else { color });
            }
        }
    });
    let schemas = list(&file["meta"]["markerSchema"]);
    let mut found = Vec::new();
    for thread in list(&file["threads"]) {
        for data in list(&thread["markers"]["data"]) {
            let mut schemas = schemas.iter();
            let schema = schemas.find(|of| of["name"] == data["type"]).unwrap();
            let color = schema["colorField"].as_str().unwrap();
            found.push(data[color].as_str().unwrap());
        }
    }
    assert_eq!(found, expected);
}

#[test]
fn nothing_is_said_of_a_browser() {
    for file in [export(&profile(0, false)), export(&profile(2_000, false))] {
        let meta = file["meta"].as_object().unwrap();
        // The page shows "Build type: Opt" for `"debug": false`.
        for key in [
            "debug",
            "appBuildID",
            "updateChannel",
            "toolkit",
            "abi",
            "misc",
            "extensions",
        ] {
            assert!(!meta.contains_key(key), "{key}");
        }
        assert_eq!(meta["product"], "app.py");
        for thread in list(&file["threads"]) {
            // The tooltip of a track has a line `Process: "default"` for this type, and any other one.
            assert_eq!(thread["processType"], "");
            assert_eq!(thread["processName"], "app.py");
        }
    }
}

#[test]
fn types_of_native_memory_say_who_called_once() {
    let file = changed(|profile| {
        for source in &mut profile.sources {
            source.kind = SourceKind::Native.name().to_owned();
        }
        let named = |name: &str, native: &str| TypeNames {
            name: name.to_owned(),
            native: native.to_owned(),
        };
        // What follows the first type are classes of the program's, or functions: nothing is read from how they are spelt.
        let types = [
            named("malloc by numpy", "malloc"),
            named("stand by me", ""),
            named("malloc", ""),
        ];
        for (of, names) in profile.types.iter_mut().skip(1).zip(types) {
            *of = names;
        }
    });
    let shared = &file["shared"];
    let names = numbers(&shared["funcTable"]["name"]);
    let texts = names
        .iter()
        .map(|&at| shared["stringArray"][at].as_str().unwrap());
    let tops: Vec<&str> = texts
        .filter(|text| text.ends_with(" (died young)"))
        .collect();
    let starting = |start: &str| -> Vec<&str> {
        let tops = tops.iter().filter(|top| top.starts_with(start));
        tops.copied().collect()
    };
    assert_eq!(starting("malloc by"), ["malloc by numpy (died young)"]);
    for name in ["stand by me in ", "malloc in "] {
        assert!(!starting(name).is_empty(), "{name}: {tops:?}");
    }
}
