//! Whether a source file is the one, or belongs to the module, that was named.

/// Whether `file` is in the place: a file by its path or the end of its path, a folder, or a module
/// by its dotted name.
pub(super) fn is_in(file: &str, place: &str) -> bool {
    if place.is_empty() || file.is_empty() {
        return false;
    }
    if let Some(frozen) = frozen(file) {
        return file == place || is_module(&frozen.replace('.', "/"), place);
    }
    is_path(file, place) || is_module(module_path(file), place)
}

/// The module of a frozen file: `<frozen importlib._bootstrap>`.
fn frozen(file: &str) -> Option<&str> {
    file.strip_prefix("<frozen ")?.strip_suffix('>')
}

/// Whether the parts of `place` are the last parts of the file's path, or of the path of a folder that it is in.
fn is_path(file: &str, place: &str) -> bool {
    if file == place {
        return true;
    }
    let place = place.strip_prefix("./").unwrap_or(place);
    let is_folder = place.ends_with('/');
    let place = place.trim_end_matches('/');
    if place.is_empty() {
        return false;
    }
    // A name without a slash and without a suffix names a module.
    if !is_folder && !place.contains(['/', '.']) {
        return false;
    }
    file.match_indices(place).any(|(at, _)| {
        let end = at + place.len();
        let starts = at == 0 || place.starts_with('/') || file[..at].ends_with('/');
        let starts = starts && (!place.starts_with('/') || at == 0);
        let ends = if is_folder || (place.contains('/') && !place.ends_with(".py")) {
            file[end..].starts_with('/') || (!is_folder && end == file.len())
        } else {
            end == file.len()
        };
        starts && ends
    })
}

/// The part of a path from which modules are imported: what follows the last `site-packages` or
/// `lib/python3.11`. The whole path, if it has none of them.
pub(crate) fn module_path(file: &str) -> &str {
    for folder in ["/site-packages/", "/dist-packages/"] {
        if let Some(at) = file.rfind(folder) {
            return &file[at + folder.len()..];
        }
    }
    let library = ["/lib/python", "/lib/pypy", "/lib64/python"]
        .into_iter()
        .filter_map(|library| file.rfind(library).map(|at| at + library.len()))
        .next();
    match library.and_then(|at| file[at..].find('/').map(|end| &file[at + end + 1..])) {
        Some(module) => module,
        None => file,
    }
}

/// Whether a path of folders is the module's, or of one in its package. The name of a path that is not in a library may
/// begin at any folder.
fn is_module(path: &str, module: &str) -> bool {
    let parts: Vec<&str> = module.split('.').collect();
    if parts
        .iter()
        .any(|part| part.is_empty() || part.contains('/'))
    {
        return false;
    }
    let path = path.strip_suffix(".py").unwrap_or(path);
    let folders: Vec<&str> = path.split('/').collect();
    // A built extension: `_speedups.cpython-311-x86_64-linux-gnu.so`.
    let is_part = |(at, (folder, part)): (usize, (&&str, &&str))| {
        folder == part || (at + 1 == parts.len() && folder.split('.').next() == Some(*part))
    };
    let begins = |at: usize| {
        let rest = &folders[at..];
        rest.len() >= parts.len() && rest.iter().zip(&parts).enumerate().all(is_part)
    };
    if path.starts_with('/') {
        (0..folders.len()).any(begins)
    } else {
        begins(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_modules() {
        let django = "/v/lib/python3.11/site-packages/django/db/models/query.py";
        let json = "/usr/lib/python3.11/json/decoder.py";
        let app = "/home/me/shop/app.py";
        for (file, place, is) in [
            (app, "app.py", true),
            (app, "shop/app.py", true),
            (app, "./app.py", true),
            (app, "p.py", false),
            (app, "app", true),
            (app, "shop", true),
            (app, "shop.app", true),
            (app, "home.app", false),
            (app, "/home/me/shop/app.py", true),
            (app, "/me/shop/app.py", false),
            (app, "/home/me", true),
            (app, "shop/", true),
            (app, "sho/", false),
            ("app.py", "app", true),
            ("app.py", "app.py", true),
            (django, "django", true),
            (django, "django.db", true),
            (django, "django.db.models.query", true),
            (django, "django/db", true),
            (django, "models/query.py", true),
            (django, "query.py", true),
            // In a library a module's name begins where it is imported from.
            (django, "models", false),
            (django, "python3", false),
            (django, "v", false),
            (json, "json", true),
            (json, "json.decoder", true),
            (json, "decoder", false),
            (json, "decoder.py", true),
            ("<frozen importlib._bootstrap>", "importlib", true),
            (
                "<frozen importlib._bootstrap>",
                "importlib._bootstrap",
                true,
            ),
            (
                "<frozen importlib._bootstrap>",
                "importlib._bootstrap_external",
                false,
            ),
            (
                "/v/lib/python3.11/site-packages/x/_fast.cpython-311-x86_64-linux-gnu.so",
                "x._fast",
                true,
            ),
            ("<string>", "<string>", true),
            ("", "app", false),
            (app, "", false),
            (app, "/", false),
        ] {
            assert_eq!(is_in(file, place), is, "{file} {place}");
        }
    }
}
