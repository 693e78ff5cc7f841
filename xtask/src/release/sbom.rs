//! The software bill of materials (SBOM) in the format `CycloneDX` 1.5: the packages compiled into the programs, as
//! reported by cargo during the build, with the checksums of `Cargo.lock`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{
    build,
    origin::Origin,
    project::{Package, Project},
};

/// The package of Debian with the C library that is linked in.
const C_LIBRARY: &str = "libc6-dev";

/// Something that is in the programs and is no crate.
#[derive(Debug)]
pub(crate) struct Library {
    name: &'static str,
    version: String,
    licence: &'static str,
}

/// Returns the libraries that the compiler links implicitly: the standard library, the C library, and the unwinder of
/// the C compiler.
///
/// # Errors
/// If a version cannot be determined.
pub(crate) fn libraries() -> Result<Vec<Library>> {
    let rust = build::printed("rustc", &["-vV"])?;
    let release = rust.lines().find_map(|line| line.strip_prefix("release: "));
    let release = release.context("rustc -vV names no release")?.to_owned();
    let c = build::printed("dpkg-query", &["--show", "--showformat=${source:Version}", C_LIBRARY])
        .context("the version of the C library is asked of Debian's package libc6-dev")?;
    let compiler = compiler_library()?;
    let gcc = build::printed("dpkg-query", &["--show", "--showformat=${source:Version}", &compiler])?;
    Ok(vec![
        Library { name: "glibc", version: c, licence: "LGPL-2.1-or-later" },
        Library { name: "libgcc", version: gcc, licence: "GPL-3.0-or-later WITH GCC-exception-3.1" },
        Library { name: "rust-std", version: release, licence: "MIT OR Apache-2.0" },
    ])
}

/// Returns the package of Debian with the library of the C compiler, which is linked in.
///
/// # Errors
/// If the compiler is not one of Debian.
pub(crate) fn compiler_library() -> Result<String> {
    let file = build::printed("gcc", &["-print-libgcc-file-name"])?;
    let owner = build::printed("dpkg-query", &["--search", &file])?;
    let package = owner.split(':').next().filter(|package| !package.is_empty());
    Ok(package.with_context(|| format!("no package of Debian has {file}: {owner}"))?.to_owned())
}

/// Returns the list as JSON. `lock` is the content of `Cargo.lock`.
///
/// # Errors
/// None in practice: the list can always be written as JSON.
pub(crate) fn text(
    project: &Project,
    compiled: &BTreeSet<String>,
    libraries: &[Library],
    lock: &str,
    origin: &Origin,
) -> Result<String> {
    let checksums = checksums(lock);
    let mut packages: Vec<_> =
        compiled.iter().filter_map(|id| Some((id, project.packages.get(id)?))).collect();
    packages.sort_by_key(|(_, package)| reference(package));
    let top = format!("taskwork@{}", project.version);
    let own = packages.iter().filter(|(_, package)| package.is_own).map(|(_, package)| reference(package));
    let own = own.chain(libraries.iter().map(|library| format!("{}@{}", library.name, library.version)));
    let mut needs = vec![json!({"ref": top, "dependsOn": own.collect::<Vec<_>>()})];
    for (_, package) in &packages {
        let ids = package.needs.iter().filter(|id| compiled.contains(*id));
        let references: BTreeSet<_> = ids.filter_map(|id| project.packages.get(id)).map(reference).collect();
        needs.push(json!({"ref": reference(package), "dependsOn": references}));
    }
    let crates = packages.iter().map(|(_, package)| component(package, &checksums));
    let components: Vec<_> = crates.chain(libraries.iter().map(Library::component)).collect();
    let list = json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": origin.timestamp(),
            "component": {
                "type": "application",
                "bom-ref": top,
                "name": "taskwork",
                "version": project.version,
                "licenses": [{"expression": "MIT OR Apache-2.0"}],
                "properties": [{"name": "commit", "value": origin.commit}],
            },
        },
        "components": components,
        "dependencies": needs,
    });
    Ok(serde_json::to_string_pretty(&list).context("the list of packages")? + "\n")
}

impl Library {
    fn component(&self) -> Value {
        json!({
            "type": "library",
            "bom-ref": format!("{}@{}", self.name, self.version),
            "name": self.name,
            "version": self.version,
            "licenses": [{"expression": self.licence}],
        })
    }
}

/// Returns the name of a package in the list: of a crate, its URL.
fn reference(package: &Package) -> String {
    let prefix = if package.is_own { "" } else { "pkg:cargo/" };
    // A version may have a `+`, which stands for a blank in URLs.
    format!("{prefix}{}@{}", package.name, package.version.replace('+', "%2B"))
}

fn component(package: &Package, checksums: &BTreeMap<(&str, &str), &str>) -> Value {
    let mut component = json!({
        "type": "library",
        "bom-ref": reference(package),
        "name": package.name,
        "version": package.version,
    });
    if !package.is_own {
        component["purl"] = reference(package).into();
    }
    if let Some(licence) = &package.licence {
        // As crates wrote it before there was a rule.
        component["licenses"] = json!([{"expression": licence.replace('/', " OR ")}]);
    }
    if let Some(sum) = checksums.get(&(package.name.as_str(), package.version.as_str())) {
        component["hashes"] = json!([{"alg": "SHA-256", "content": sum}]);
    }
    component
}

/// Reads the checksums of crates, by name and version.
fn checksums(lock: &str) -> BTreeMap<(&str, &str), &str> {
    let mut checksums = BTreeMap::new();
    for package in lock.split("[[package]]") {
        let field = |name: &str| {
            let lines = package.lines().filter_map(|line| line.split_once(" = "));
            lines.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value.trim_matches('"'))
        };
        if let (Some(name), Some(version), Some(sum)) = (field("name"), field("version"), field("checksum")) {
            checksums.insert((name, version), sum);
        }
    }
    checksums
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = r#"version = 4

[[package]]
name = "bytes"
version = "1.0.0"
source = "registry+https://example.org"
checksum = "00ff"
dependencies = [
 "serde",
]

[[package]]
name = "tsp-example"
version = "0.1.0"
"#;

    fn list(compiled: &[&str]) -> Value {
        let project = Project::parse(&super::super::project::tests::small()).unwrap();
        let compiled = compiled.iter().map(|&id| id.to_owned()).collect();
        let origin = Origin { commit: "1f1e8d6aa0b1".to_owned(), epoch: 0 };
        let libraries =
            [Library { name: "glibc", version: "2.36-9".to_owned(), licence: "LGPL-2.1-or-later" }];
        serde_json::from_str(&text(&project, &compiled, &libraries, LOCK, &origin).unwrap()).unwrap()
    }

    #[test]
    fn compiled_packages_are_listed_with_licence_checksum_and_dependencies() {
        let list = list(&["path+file:///p#tsp-example", "registry#bytes@1.0.0"]);
        let [bytes, own, c] = &list["components"].as_array().unwrap()[..] else { panic!("three: {list}") };
        assert_eq!(bytes["purl"], "pkg:cargo/bytes@1.0.0");
        assert_eq!(bytes["hashes"][0]["content"], "00ff");
        assert_eq!(bytes["licenses"][0]["expression"], "MIT");
        assert_eq!((&own["name"], &own["purl"]), (&json!("tsp-example"), &Value::Null));
        assert_eq!(c["bom-ref"], "glibc@2.36-9");
        let needs = list["dependencies"].as_array().unwrap();
        assert_eq!(needs[0]["dependsOn"], json!(["tsp-example@0.1.0", "glibc@2.36-9"]));
        assert!(needs.contains(&json!({"ref": "tsp-example@0.1.0", "dependsOn": ["pkg:cargo/bytes@1.0.0"]})));
        assert_eq!(list["metadata"]["timestamp"], "1970-01-01T00:00:00Z");
    }

    #[test]
    fn uncompiled_packages_are_not_listed() {
        let list = list(&["path+file:///p#tsp-example"]);
        assert!(!list.to_string().contains("bytes"), "{list}");
    }

    #[test]
    fn unknown_lock_file_format_has_no_checksums() {
        assert!(checksums("").is_empty() && checksums("[[package]]\nname = \"a\"\n").is_empty());
        assert_eq!(checksums(LOCK)[&("bytes", "1.0.0")], "00ff");
    }
}
