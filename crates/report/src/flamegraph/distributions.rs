//! The names of the distributions that packages were installed from: `yaml` is a part of `PyYAML`.
//!
//! A profile has paths only. The names are read from the environment's own records (`*.dist-info`, `*.egg-info`), if
//! it is where it was when the program ran. Otherwise a package has the name of its folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::Path;

/// The folders that packages are installed in.
const FOLDERS: [&str; 2] = ["/site-packages/", "/dist-packages/"];

/// No record of a distribution is larger, in bytes.
const LARGEST_RECORD: u64 = 16 << 20;

/// The names of distributions by the names of their folders and modules, as far as both are different, and for packages that occur in `files` only.
/// What several distributions share (a namespace) has no entry.
pub fn names<'a>(files: impl IntoIterator<Item = &'a str>) -> BTreeMap<String, String> {
    let mut wanted: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for file in files {
        if let Some((environment, package)) = split(file) {
            wanted.entry(environment).or_default().insert(package);
        }
    }
    let mut found: BTreeMap<String, Option<String>> = BTreeMap::new();
    for (environment, packages) in wanted {
        for (name, of) in installed(Path::new(environment)) {
            for package in of.iter().filter(|of| packages.contains(of.as_str())) {
                found
                    .entry(package.clone())
                    .and_modify(|known| {
                        if known.as_deref() != Some(&name) {
                            *known = None;
                        }
                    })
                    .or_insert_with(|| Some(name.clone()));
            }
        }
    }
    found
        .into_iter()
        .filter_map(|(package, name)| Some((package, name?)))
        .filter(|(package, name)| package != name)
        .collect()
}

/// The folder that a file's package is installed in, and the package's folder or module.
fn split(file: &str) -> Option<(&str, &str)> {
    let ends = FOLDERS.map(|folder| file.rfind(folder).map(|at| at + folder.len()));
    let end = ends.into_iter().flatten().max()?;
    let package = file[end..].split('/').next()?;
    Some((&file[..end], module(package)))
}

/// A module's name, without the suffix of its file: of `six.py` and of `_cffi.cpython-313-x86_64-linux-gnu.so`.
fn module(file: &str) -> &str {
    let suffixed = [".py", ".so", ".pyc", ".pyd"]
        .iter()
        .any(|suffix| file.ends_with(suffix));
    if suffixed {
        file.split('.').next().unwrap_or(file)
    } else {
        file
    }
}

/// All distributions of an environment, with the folders and modules of each.
fn installed(environment: &Path) -> Vec<(String, BTreeSet<String>)> {
    let entries = fs::read_dir(environment).into_iter().flatten().flatten();
    let mut records: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| {
            let suffix = path.extension().unwrap_or_default();
            suffix == "dist-info" || suffix == "egg-info"
        })
        .collect();
    records.sort();
    records
        .iter()
        .filter_map(|record| Some((name(record)?, contents(record))))
        .collect()
}

/// The text of an ordinary file, unless it is larger than any record.
fn text(path: &Path) -> Option<String> {
    let data = fs::metadata(path).ok()?;
    if !data.is_file() || data.len() > LARGEST_RECORD {
        return None;
    }
    let mut text = String::new();
    let file = fs::File::open(path).ok()?;
    file.take(LARGEST_RECORD).read_to_string(&mut text).ok()?;
    Some(text)
}

fn name(record: &Path) -> Option<String> {
    let metadata = text(&record.join("METADATA"))
        .or_else(|| text(&record.join("PKG-INFO")))
        .or_else(|| text(record))?;
    let headers = metadata.lines().take_while(|line| !line.is_empty());
    let name = headers
        .filter_map(|line| line.strip_prefix("Name:"))
        .map(str::trim)
        .next()?;
    Some(name.to_owned())
}

/// The folders and modules that a distribution has installed: of the list of its files, or as it says itself.
fn contents(record: &Path) -> BTreeSet<String> {
    let first = |path: &str| {
        let folder = path.split(['/', ',']).next().unwrap_or_default();
        module(folder.trim_matches('"')).to_owned()
    };
    let lines = text(&record.join("RECORD"))
        .or_else(|| text(&record.join("top_level.txt")))
        .unwrap_or_default();
    lines.lines().map(first).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Installs a distribution: its record's folder, its metadata, and a list of its files.
    fn install(environment: &Path, record: &str, name: &str, list: (&str, &str)) {
        let folder = environment.join(record);
        fs::create_dir_all(&folder).expect("writable");
        let suffix = if record.ends_with("dist-info") {
            "METADATA"
        } else {
            "PKG-INFO"
        };
        fs::write(
            folder.join(suffix),
            format!("Metadata-Version: 2.1\nName: {name}\n\nName: not this\n"),
        )
        .expect("writable");
        fs::write(folder.join(list.0), list.1).expect("writable");
    }

    #[test]
    fn packages_have_the_names_of_their_distributions() {
        let folder = tempfile::tempdir().expect("a folder");
        let environment = folder.path().join("lib/python3.13/site-packages");
        let of = |file: &str| format!("{}/{file}", environment.display());
        let record = "yaml/__init__.py,sha256=x,9\n_yaml/__init__.py,,\nPyYAML-6.0.dist-info/RECORD,,\n../../../bin/y,,\n";
        install(
            &environment,
            "PyYAML-6.0.dist-info",
            "PyYAML",
            ("RECORD", record),
        );
        install(
            &environment,
            "six-1.dist-info",
            "six",
            ("RECORD", "six.py,,\n"),
        );
        install(
            &environment,
            "typing_extensions-4.dist-info",
            "typing-extensions",
            ("RECORD", "typing_extensions.py,,\n"),
        );
        install(
            &environment,
            "google_a-1.dist-info",
            "google-a",
            ("RECORD", "google/a.py,,\n"),
        );
        install(
            &environment,
            "google_b-1.dist-info",
            "google-b",
            ("RECORD", "google/b.py,,\n"),
        );
        install(
            &environment,
            "old-1.egg-info",
            "Old",
            ("top_level.txt", "bs4\n"),
        );
        let files = [
            "yaml/loader.py",
            "six.py",
            "typing_extensions.py",
            "google/a.py",
            "bs4/element.py",
            "unknown/x.py",
        ]
        .map(of);
        let files = files.iter().map(String::as_str).chain([
            "/elsewhere/site-packages/yaml/a.py",
            "/home/a/app.py",
            "",
        ]);
        let expected = [
            ("bs4", "Old"),
            ("typing_extensions", "typing-extensions"),
            ("yaml", "PyYAML"),
        ];
        let expected = expected.map(|(package, name)| (package.to_owned(), name.to_owned()));
        assert_eq!(names(files), BTreeMap::from(expected));
    }
}
