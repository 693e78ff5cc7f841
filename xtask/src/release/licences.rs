//! The licences of all code linked into the programs, as one text.
//!
//! The licences of crates are taken from their published sources: those must be distributed, with the
//! names of the holders. (`cargo-about` would be another program to install, and does not cover the C library.)

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};

use super::{
    build,
    project::{Package, Project},
};

/// The prefixes of names of licence files.
const NAMES: [&str; 6] = ["licence", "license", "copying", "copyright", "notice", "unlicense"];

/// The suffixes of names of other files.
const OTHER: [&str; 12] = ["c", "cc", "go", "h", "html", "json", "pl", "py", "rs", "sh", "toml", "yml"];

/// The terms of the C library, in Debian's package with its archives.
const C_LIBRARY: &str = "/usr/share/doc/libc6-dev/copyright";

/// The licence of most of it.
const LGPL: &str = "/usr/share/common-licenses/LGPL-2.1";

/// The licence of the C compiler's library, to which its exception adds permissions.
const GPL: &str = "/usr/share/common-licenses/GPL-3";

/// The notices of the standard library and of the crates in it, below the folder of the toolchain.
const STANDARD: &str = "share/doc/rust/COPYRIGHT-library.html";

/// The licence called MIT, for crates that were published without their own copy of it.
const MIT: &str = "\
Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
associated documentation files (the \"Software\"), to deal in the Software without restriction,
including without limitation the rights to use, copy, modify, merge, publish, distribute,
sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial
portions of the Software.

THE SOFTWARE IS PROVIDED \"AS IS\", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT
NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES
OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN
CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
";

/// The text before the terms of the C library.
const RELINK: &str = "\
The GNU C library is linked statically into the programs. It may be exchanged for a changed one by
building them again from their source, on a system that has the changed one: `cargo xtask release`.
";

const LINE: &str = "==============================================================================";

/// Returns the licences of the packages in `compiled` that are not the project's own, of the standard library, of the C
/// library and of that of the C compiler. `apache` is the text of the Apache License 2.0.
///
/// # Errors
/// If the terms of one of them are not known, or a file cannot be read.
pub(crate) fn text(project: &Project, compiled: &BTreeSet<String>, apache: &str) -> Result<String> {
    let mut users: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in compiled.iter().filter_map(|id| project.packages.get(id)).filter(|package| !package.is_own)
    {
        let licence = package.licence.as_deref().unwrap_or("see below");
        let user = format!("{} {} ({licence})", package.name, package.version);
        for text in texts(package, apache)? {
            users.entry(text).or_default().insert(user.clone());
        }
    }
    let standard = "the standard library of Rust, and what is in it (MIT OR Apache-2.0, and others)";
    let notices = Path::new(&build::printed("rustc", &["--print", "sysroot"])?).join(STANDARD);
    users.entry(tidy(&without_tags(&read(&notices)?))).or_default().insert(standard.to_owned());
    users.entry(tidy(apache)).or_default().insert(standard.to_owned());
    let compiler = Path::new("/usr/share/doc").join(compiler_library()?).join("copyright");
    let compiler = format!("{}\n{}", read(&compiler)?, read(Path::new(GPL))?);
    users
        .entry(tidy(&compiler))
        .or_default()
        .insert("libgcc (GPL-3.0-or-later WITH GCC-exception-3.1)".to_owned());
    let library = format!("{RELINK}\n{}\n{}", read(Path::new(C_LIBRARY))?, read(Path::new(LGPL))?);
    users
        .entry(tidy(&library))
        .or_default()
        .insert("the GNU C library (LGPL-2.1-or-later, and others)".to_owned());
    Ok(join(&users))
}

/// Returns the package of Debian with the library of the C compiler, which is linked in.
///
/// # Errors
/// If the compiler is not one of Debian.
fn compiler_library() -> Result<String> {
    let file = build::printed("gcc", &["-print-libgcc-file-name"])?;
    let owner = build::printed("dpkg-query", &["--search", &file])?;
    let package = owner.split(':').next().filter(|package| !package.is_empty());
    Ok(package.with_context(|| format!("no package of Debian has {file}: {owner}"))?.to_owned())
}

/// Writes each text once, with those above that come under it.
fn join(users: &BTreeMap<String, BTreeSet<String>>) -> String {
    let mut sorted: Vec<_> = users.iter().map(|(text, users)| (users, text)).collect();
    sorted.sort();
    let mut all = "What the programs contain besides the project's own code, and its licences.\n".to_owned();
    for (users, text) in sorted {
        let users = users.iter().map(String::as_str).collect::<Vec<_>>().join("\n");
        let _infallible = write!(all, "\n{LINE}\n{users}\n{LINE}\n\n{text}");
    }
    all
}

/// Returns the licence texts of a crate, or those of the licences in its manifest.
fn texts(package: &Package, apache: &str) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    find(&package.folder, &mut paths)
        .with_context(|| format!("{} cannot be read", package.folder.display()))?;
    let texts: Vec<_> = paths.iter().map(|path| Ok(tidy(&read(path)?))).collect::<Result<_>>()?;
    let texts: Vec<_> = texts.into_iter().filter(|text| !text.trim().is_empty()).collect();
    if !texts.is_empty() {
        return Ok(texts);
    }
    let licence = package.licence.as_deref().unwrap_or_default();
    let offers: Vec<_> = licence.split(['/', ' ']).map(|word| word.trim_matches(['(', ')'])).collect();
    // With `AND`, one of them would not be enough.
    let is_choice = !offers.contains(&"AND");
    if is_choice && offers.contains(&"Apache-2.0") {
        return Ok(vec![tidy(apache)]);
    }
    if is_choice && offers.contains(&"MIT") {
        let holders = if package.authors.is_empty() {
            format!("the authors of {}", package.name)
        } else {
            package.authors.join(", ")
        };
        return Ok(vec![format!("Copyright (c) {holders}\n\n{MIT}")]);
    }
    bail!(
        "{} {} has no file with its licence ({licence:?}) in {}: its terms cannot be passed on",
        package.name,
        package.version,
        package.folder.display()
    )
}

/// Finds the files with licences, in sorted order.
fn find(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let mut paths: Vec<_> = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.sort();
    for path in paths {
        let kind = path.symlink_metadata()?;
        if kind.is_dir() {
            find(&path, found)?;
        } else if kind.is_file() && path.file_name().is_some_and(is_licence) {
            found.push(path);
        }
    }
    Ok(())
}

fn is_licence(name: &OsStr) -> bool {
    let name = name.to_string_lossy().to_lowercase();
    let end = name.rsplit_once('.').map_or("", |(_, end)| end);
    NAMES.iter().any(|begin| name.starts_with(begin)) && !OTHER.contains(&end)
}

fn read(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| format!("{}: a licence cannot be read", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the text of an HTML page, with at most one empty line in a row.
fn without_tags(page: &str) -> String {
    let mut text = String::new();
    for part in page.split('<') {
        // The text before the first tag.
        text.push_str(part.split_once('>').map_or(part, |(_, rest)| rest));
    }
    let entities = [
        ("&#34;", "\""),
        ("&#39;", "'"),
        ("&#60;", "<"),
        ("&lt;", "<"),
        ("&#62;", ">"),
        ("&gt;", ">"),
        ("&amp;", "&"),
    ];
    for (entity, character) in entities {
        text = text.replace(entity, character);
    }
    let mut lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.dedup_by(|line, before| line.is_empty() && before.is_empty());
    lines.join("\n")
}

/// Makes texts equal that differ in the ends of their lines only.
fn tidy(text: &str) -> String {
    let lines = text.trim_end().lines().map(|line| line.trim_end().to_owned() + "\n");
    lines.collect::<String>().trim_start_matches('\n').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(folder: &Path, licence: &str) -> Package {
        Package {
            name: "leaf".to_owned(),
            version: "1.0.0".to_owned(),
            licence: Some(licence.to_owned()).filter(|licence| !licence.is_empty()),
            authors: vec!["A. Author".to_owned()],
            folder: folder.to_owned(),
            is_own: false,
        }
    }

    #[test]
    fn licence_files_are_found_in_all_folders_without_code() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("LICENSE-MIT", "MIT\r\n  terms  \r\n\r\n");
        write("src/license.rs", "fn main() {}");
        write("third_party/fiat/LICENSE.txt", "fiat");
        write("COPYING.LESSER", "lesser");
        write("README.md", "no licence");
        let texts = texts(&package(folder.path(), "MIT"), "apache").unwrap();
        assert_eq!(texts, ["lesser\n", "MIT\n  terms\n", "fiat\n"]);
    }

    #[test]
    fn crate_without_text_has_standard_licence_or_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("LICENSE"), "\n").unwrap();
        let of = |licence: &str| texts(&package(folder.path(), licence), "apache");
        for licence in ["Apache-2.0", "MIT OR Apache-2.0", "MIT/Apache-2.0", "(Apache-2.0 OR ISC)"] {
            assert_eq!(of(licence).unwrap(), ["apache\n"], "{licence}");
        }
        let mit = of("MIT").unwrap();
        assert!(mit[0].starts_with("Copyright (c) A. Author\n\nPermission is hereby granted"), "{mit:?}");
        for licence in ["", "ISC", "MIT AND ISC", "Apache-2.0 AND MIT", "LGPL-3.0"] {
            let error = of(licence).unwrap_err().to_string();
            assert!(error.contains("leaf 1.0.0 has no file with its licence"), "{licence}: {error}");
        }
    }

    #[test]
    fn shared_text_is_written_once() {
        let users = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<BTreeSet<_>>();
        let all = join(&BTreeMap::from([
            ("one\n".to_owned(), users(&["b 1 (MIT)", "a 2 (MIT)"])),
            ("other\n".to_owned(), users(&["c 1 (ISC)"])),
        ]));
        assert!(all.ends_with(&format!(
            "{LINE}\na 2 (MIT)\nb 1 (MIT)\n{LINE}\n\none\n\n{LINE}\nc 1 (ISC)\n{LINE}\n\nother\n"
        )));
    }

    #[test]
    fn page_becomes_text() {
        let page = "<html>\n<p>A &#60;a@b&#62; &amp; <b>B</b>:</p>\n\n  \n\n<pre>&#34;AS IS&#34;\n  x</pre>";
        assert_eq!(without_tags(page), "\nA <a@b> & B:\n\n\"AS IS\"\n  x");
    }

    #[test]
    fn licence_names_are_recognized() {
        for name in
            ["LICENSE", "License.md", "LICENCE", "COPYING", "NOTICE.txt", "LICENSE-APACHE-2.0", "UNLICENSE"]
        {
            assert!(is_licence(OsStr::new(name)), "{name}");
        }
        for name in ["license.rs", "license_check.py", "README", "my-license", "LICENSE.html"] {
            assert!(!is_licence(OsStr::new(name)), "{name}");
        }
    }
}
