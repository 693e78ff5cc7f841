//! The dependencies between the modules of the runtime. The dependencies between the modules listed here are
//! acyclic, and must remain so.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// A module, and the modules of the crate that it may import.
const LAYERS: &[(&str, &[&str])] = &[
    ("output", &[]),
    ("companion", &["display", "id"]),
    ("display", &[]),
    ("variable", &["wire"]),
    ("wire", &["companion", "core", "envelope", "holdings", "id"]),
    ("view", &["display", "figures", "outlook"]),
    ("erased", &["id", "pool", "wire"]),
    ("report", &["config", "display", "figures", "pool", "task", "variable", "wire"]),
    (
        "shell",
        &[
            "companion",
            "config",
            "core",
            "display",
            "envelope",
            "erased",
            "figures",
            "holdings",
            "id",
            "outlook",
            "pool",
            "report",
            "scope",
            "steps",
            "task",
            "variable",
            "view",
            "wire",
        ],
    ),
];

fn sources(module: &str) -> Vec<PathBuf> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let file = src.join(module).with_extension("rs");
    if file.is_file() {
        return vec![file];
    }
    let (mut found, mut folders) = (Vec::new(), vec![src.join(module)]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the folder of a module can be read") {
            let path = entry.expect("so can its entries").path();
            if path.is_dir() {
                folders.push(path);
            } else if !path.to_string_lossy().ends_with("_tests.rs") {
                found.push(path);
            }
        }
    }
    found
}

/// Returns the source without its comments, and without the tests at its end.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("a source can be read");
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// Returns the modules of the crate that a source names: after `crate::`, alone or in braces.
fn imports(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for after in code.split("crate::").skip(1) {
        let Some(list) = after.strip_prefix('{') else {
            found.insert(first_name(after));
            continue;
        };
        let (mut depth, mut begins) = (0, true);
        for (place, c) in list.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => begins = true,
                c if depth == 0 && begins && !c.is_whitespace() => {
                    begins = false;
                    found.insert(first_name(&list[place..]));
                }
                _ => {}
            }
        }
    }
    found
}

fn first_name(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

#[test]
fn names_in_an_import_are_found() {
    let code = "use crate::{a::{x, y},\n    b,\n};\nuse crate::c::z;\nfn f() { crate::d::g() }";
    assert_eq!(imports(code), ["a", "b", "c", "d"].map(str::to_owned).into());
}

#[test]
fn modules_import_only_permitted_modules() {
    for (module, allowed) in LAYERS {
        let files = sources(module);
        assert!(!files.is_empty(), "{module} has no source");
        for file in files {
            let mut imported = imports(&code(&file));
            imported.remove(*module);
            let above: Vec<_> = imported.iter().filter(|name| !allowed.contains(&name.as_str())).collect();
            assert!(above.is_empty(), "{} imports {above:?}", file.display());
        }
    }
}

#[test]
fn runtime_depends_on_no_command_line_crate() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let manifest = fs::read_to_string(manifest).expect("the manifest can be read");
    for name in ["clap", "comfy-table", "ctrlc", "humantime", "indicatif", "tracing-subscriber"] {
        assert!(!manifest.lines().any(|line| line.starts_with(name)), "taskwork depends on {name}");
    }
}
