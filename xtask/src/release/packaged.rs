//! The content of the Debian packages: `taskwork`, with the command, the units and their user, and `taskwork-tsp`.

use anyhow::{Context as _, Result};

use super::{
    artefacts::Parts,
    deb::Package,
    files::Files,
    manual::{self, Place},
    tarball,
};

/// Creates the user, and makes systemd load the units. None is enabled: the operator chooses the programs and the
/// ZooKeeper.
const AFTER_INSTALLATION: &str = "\
#!/bin/sh
set -e
if [ \"$1\" = configure ]; then
    systemd-sysusers ${DPKG_ROOT:+--root=\"$DPKG_ROOT\"} taskwork.conf
fi
if [ -z \"$DPKG_ROOT\" ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
";

/// Lets the nodes leave, but not at an upgrade: jobs are for the build that they were submitted with, so nodes of
/// the old one work on until they are stopped.
const BEFORE_REMOVAL: &str = "\
#!/bin/sh
set -e
if [ \"$1\" = remove ] && [ -z \"$DPKG_ROOT\" ] && [ -d /run/systemd/system ]; then
    systemctl stop UNITS
fi
";

const AFTER_REMOVAL: &str = "\
#!/bin/sh
set -e
if [ -z \"$DPKG_ROOT\" ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
";

/// The checks of packages that do not apply, with reasons.
const OVERRIDE: &str = "\
# One file that runs on every distribution, in images without a C library too.
PACKAGE: statically-linked-binary [usr/bin/PROGRAM]
";

/// Returns the package `taskwork` and the files that it installs.
///
/// # Errors
/// If one of them is missing.
pub(crate) fn taskwork<'a>(parts: &Parts<'a>) -> Result<(Package<'a>, Files)> {
    let units = parts.units()?;
    let stopped = BEFORE_REMOVAL.replace("UNITS", &patterns(units.iter().map(|(name, _)| name.as_str())));
    let package = Package {
        name: "taskwork",
        version: &parts.project.version,
        maintainer: parts.maintainer,
        relations: vec!["Depends: systemd | systemd-standalone-sysusers | systemd-sysusers".to_owned()],
        synopsis: "elastic pool of tasks for tree search, the operator's command",
        description: "taskwork runs tree searches, branch and bound and workflows on machines\n\
                      that come and go. A search continues exactly where lost machines have\n\
                      left it. ZooKeeper coordinates the nodes.\n\
                      \n\
                      This package has the command that shows and controls a cluster, and units\n\
                      of systemd, which are not enabled.",
        scripts: vec![
            ("postinst", AFTER_INSTALLATION.to_owned()),
            ("postrm", AFTER_REMOVAL.to_owned()),
            ("prerm", stopped),
        ],
    };
    let mut files = program(parts, &package, "taskwork")?;
    for (name, unit) in units {
        files.add(&format!("usr/lib/systemd/system/{name}"), packaged_unit(&unit))?;
    }
    files.add("usr/lib/sysusers.d/taskwork.conf", parts.user()?)?;
    files.add_all("usr/share/doc/taskwork", parts.documents()?)?;
    Ok((package, files))
}

/// Returns the package `taskwork-tsp` and the files that it installs.
///
/// # Errors
/// If one of them is missing.
pub(crate) fn tsp<'a>(parts: &Parts<'a>) -> Result<(Package<'a>, Files)> {
    let package = Package {
        name: "taskwork-tsp",
        version: &parts.project.version,
        maintainer: parts.maintainer,
        // For the unit that runs nodes; `tsp solve` needs nothing.
        relations: vec![format!("Recommends: taskwork (= {})", parts.project.version)],
        synopsis: "travelling salesman, solved on one machine or on many",
        description: "tsp finds shortest tours and proves that they are, by branch and bound:\n\
                      on all processors of a machine, or on the nodes of a taskwork cluster.",
        scripts: Vec::new(),
    };
    let mut files = program(parts, &package, "tsp")?;
    files.add_all("usr/share/doc/taskwork-tsp/examples", parts.folder("tsp-example/instances")?)?;
    Ok((package, files))
}

/// Returns the files of a program, with those that every package requires.
fn program(parts: &Parts<'_>, package: &Package<'_>, program: &str) -> Result<Files> {
    let name = package.name;
    let mut files = Files::default();
    files.add_program(&format!("usr/bin/{program}"), parts.program(program)?)?;
    files.add_all("usr", manual::of(parts.built, program, Place::Package)?)?;
    let documents = format!("usr/share/doc/{name}");
    files.add(&format!("{documents}/copyright"), copyright(&parts.read("LICENSE-MIT")?)?)?;
    files.add(&format!("{documents}/changelog.gz"), package.changelog(parts.origin)?)?;
    let licences = tarball::gzip(parts.licences.as_bytes())?;
    files.add(&format!("{documents}/THIRD-PARTY-LICENSES.txt.gz"), licences)?;
    let words = OVERRIDE.replace("PACKAGE", name).replace("PROGRAM", program);
    files.add(&format!("usr/share/lintian/overrides/{name}"), words)?;
    Ok(files)
}

/// Changes a unit to run packaged programs; for nodes also the operator's own programs in `/usr/local/bin`.
fn packaged_unit(unit: &str) -> String {
    let line = |line: &str| {
        if line.starts_with('#') {
            line.replace("/usr/local/bin/", "")
        } else {
            line.replace("/usr/local/bin/%i", "/usr/bin/env %i").replace("/usr/local/bin/", "/usr/bin/")
        }
    };
    unit.lines().map(|text| line(text) + "\n").collect()
}

/// Returns the patterns of units for systemctl: of a template, all of its instances.
fn patterns<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("'{}'", name.replace("@.", "@*."))).collect::<Vec<_>>().join(" ")
}

/// Returns the terms of the project in Debian's format. `mit` is the MIT License, which starts with
/// the holders.
fn copyright(mit: &str) -> Result<String> {
    let (holders, terms) =
        mit.split_once("\n\n").context("LICENSE-MIT: the holders, an empty line, and the terms")?;
    let holders =
        holders.trim().strip_prefix("Copyright (c) ").context("LICENSE-MIT: no \"Copyright (c) \"")?;
    let terms = terms.trim_end().lines().map(|line| if line.trim().is_empty() { "." } else { line });
    let terms = terms.collect::<Vec<_>>().join("\n ");
    Ok(format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: taskwork\n\
         Comment: THIRD-PARTY-LICENSES.txt.gz has the terms of what is linked into the program.\n\n\
         Files: *\nCopyright: {holders}\nLicense: Expat or Apache-2.0\n\n\
         License: Expat\n {terms}\n\n\
         License: Apache-2.0\n On Debian systems, the text is in /usr/share/common-licenses/Apache-2.0.\n"
    ))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::workspace;

    #[test]
    fn packaged_unit_also_runs_packaged_programs() {
        let unit =
            fs::read_to_string(workspace::root().join("deploy/systemd/taskwork-node@.service")).unwrap();
        let unit = packaged_unit(&unit);
        assert!(unit.contains("\nExecStart=/usr/bin/env %i node "), "{unit}");
        assert!(!unit.contains("/usr/local"), "{unit}");
        assert_eq!(
            packaged_unit("ExecStart=/usr/local/bin/taskwork scale\n"),
            "ExecStart=/usr/bin/taskwork scale\n"
        );
    }

    #[test]
    fn removal_stops_all_instances_of_templates() {
        let names = ["taskwork-dashboard.service", "taskwork-node@.service"];
        assert_eq!(patterns(names.into_iter()), "'taskwork-dashboard.service' 'taskwork-node@*.service'");
    }

    #[test]
    fn copyright_file_has_holders_and_both_licences() {
        let text = copyright(&fs::read_to_string(workspace::root().join("LICENSE-MIT")).unwrap()).unwrap();
        assert!(
            text.contains("\nCopyright: 20") && text.contains("\nLicense: Expat\n Permission is hereby"),
            "{text}"
        );
        assert!(text.contains("/usr/share/common-licenses/Apache-2.0"));
        // A line without a leading blank would start a field.
        let terms = text.split("License: Expat\n").nth(1).unwrap();
        assert!(terms.lines().take_while(|line| !line.is_empty()).all(|line| line.starts_with(' ')));
        for broken in ["", "no holders\n\nterms", "Copyright (c) A"] {
            assert!(copyright(broken).is_err(), "{broken:?}");
        }
    }

    #[test]
    fn scripts_have_valid_shell_syntax() {
        for script in [AFTER_INSTALLATION, BEFORE_REMOVAL, AFTER_REMOVAL] {
            let status = std::process::Command::new("sh").args(["-n", "-c", script]).status().unwrap();
            assert!(status.success(), "{script}");
        }
    }
}
