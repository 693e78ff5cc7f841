//! `cargo xtask chart`: the Helm chart, generated from the manifests of `deploy/kubernetes`.
//!
//! A line of a manifest that ends with `# chart: NAME` becomes a setting of the chart: its value is the default. One
//! with `# chart: NAME + NUMBER` follows from another setting. Lines between `# chart if: NAME` and `# chart end` are
//! left out if a setting is false.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{
    kubernetes::{CHART, MANIFESTS},
    workspace,
};

/// The files of the chart, by their paths in its folder.
type Chart = BTreeMap<String, String>;

/// The manifests, and the settings without which they are left out.
const SOURCES: [(&str, Option<&str>); 3] =
    [("base", None), ("dashboard", Some("withDashboard")), ("zookeeper", Some("withZookeeper"))];

const MARK: &str = " # chart: ";
const IF: &str = "# chart if: ";
const END: &str = "# chart end";
const GENERATED: &str = "# Generated from deploy/kubernetes by `cargo xtask chart`: change it there.\n";

/// The template that refuses invalid settings.
const GUARDED: &str = "templates/base-nodes.yaml";
const GUARD: &str = "{{- if not (or .Values.withZookeeper .Values.insecure) }}\n\
    {{- fail \"a ZooKeeper elsewhere would get the credentials in the clear: use deploy/kubernetes/overlays/production, \
    which has TLS, or set insecure=true if the network is yours alone\" }}\n\
    {{- end }}\n";

/// Writes the chart.
///
/// # Errors
/// A manifest cannot be read, or has different values for one setting; or a file cannot be written.
pub(crate) fn run() -> Result<()> {
    let folder = workspace::root().join(CHART);
    for (name, content) in chart(&workspace::root())? {
        let path = folder.join(&name);
        fs::create_dir_all(path.parent().unwrap_or(&folder))?;
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{CHART}/{name}");
    }
    Ok(())
}

fn chart(root: &Path) -> Result<Chart> {
    let (mut chart, mut settings) = (Chart::new(), BTreeMap::new());
    for (folder, condition) in SOURCES {
        let from = root.join(MANIFESTS).join(folder);
        let mut names: Vec<_> = fs::read_dir(&from)
            .with_context(|| format!("cannot read {}", from.display()))?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<Result<_>>()?;
        let is_yaml = |name: &str| Path::new(name).extension().is_some_and(|extension| extension == "yaml");
        names.retain(|name| is_yaml(name) && name != "kustomization.yaml");
        names.sort();
        for name in names {
            let manifest = fs::read_to_string(from.join(&name))?;
            let template = template(&manifest, &mut settings).with_context(|| format!("{folder}/{name}"))?;
            let template = match condition {
                Some(setting) => format!("{{{{- if .Values.{setting} }}}}\n{template}{{{{- end }}}}\n"),
                None => template,
            };
            let file = format!("templates/{folder}-{name}");
            let guard = if file == GUARDED { GUARD } else { "" };
            chart.insert(file, format!("{GENERATED}{guard}{template}"));
        }
    }
    chart.insert("values.yaml".to_owned(), values(&settings));
    let version = env!("CARGO_PKG_VERSION");
    let about = "apiVersion: v2\nname: taskwork\ndescription: Nodes of a program on the taskwork runtime, with ZooKeeper\n";
    let about =
        format!("{GENERATED}{about}type: application\nversion: {version}\nappVersion: \"{version}\"\n");
    chart.insert("Chart.yaml".to_owned(), about);
    Ok(chart)
}

/// Makes a template of a manifest, and collects its settings with their defaults.
fn template(manifest: &str, settings: &mut BTreeMap<String, String>) -> Result<String> {
    ensure!(!manifest.contains("{{"), "Helm would take {{{{ for its own");
    let mut template = String::new();
    let mut sums = Vec::new();
    for line in manifest.lines() {
        if let Some(setting) = line.trim_start().strip_prefix(IF) {
            writeln!(template, "{{{{- if .Values.{setting} }}}}")?;
            continue;
        }
        if line.trim() == END {
            template.push_str("{{- end }}\n");
            continue;
        }
        let Some((line, setting)) = line.split_once(MARK) else {
            template.push_str(line);
            template.push('\n');
            continue;
        };
        let Some(at) = line.rfind(": ").map(|at| at + 2).or(line.rfind('=').map(|at| at + 1)) else {
            bail!("{line:?} has no value for the setting {setting}");
        };
        let (key, value) = line.split_at(at);
        if let Some((setting, more)) = setting.split_once(" + ") {
            sums.push((setting, more.parse::<u64>()?, value.parse::<u64>()?));
            writeln!(template, "{key}{{{{ add .Values.{setting} {more} }}}}")?;
            continue;
        }
        let before = settings.insert(setting.to_owned(), value.to_owned());
        ensure!(before.is_none_or(|before| before == value), "{setting} has two defaults");
        let quote = if value.starts_with('"') { " | quote" } else { "" };
        writeln!(template, "{key}{{{{ .Values.{setting}{quote} }}}}")?;
    }
    for (setting, more, value) in sums {
        let default = settings.get(setting).and_then(|default| default.parse::<u64>().ok());
        ensure!(default.is_some_and(|default| default + more == value), "{setting} + {more} is not {value}");
    }
    Ok(template)
}

/// The settings that are no value of a manifest.
const SWITCHES: &str = "\
# Whether the chart includes ZooKeeper; otherwise set its address below, with port 2181 or 2182.
withZookeeper: true
# Whether the chart includes the dashboard: deploy/kubernetes/dashboard/kustomization.yaml states its secret.
withDashboard: false
# Whether credentials may be sent unencrypted to an external ZooKeeper.
insecure: false
";

fn values(settings: &BTreeMap<String, String>) -> String {
    let mut values = format!("{GENERATED}{SWITCHES}");
    for (name, default) in settings {
        let _infallible = writeln!(values, "{name}: {default}");
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chart_is_up_to_date() {
        let folder = workspace::root().join(CHART);
        for (name, content) in chart(&workspace::root()).unwrap() {
            let there = fs::read_to_string(folder.join(&name)).unwrap_or_default();
            assert!(there == content, "{name} is not current: run `cargo xtask chart`");
        }
    }

    #[test]
    fn chart_with_defaults_equals_manifests() {
        let mut settings = BTreeMap::new();
        let manifest = fs::read_to_string(workspace::root().join(MANIFESTS).join("base/nodes.yaml")).unwrap();
        let mut filled = template(&manifest, &mut settings).unwrap();
        let deadline: u64 = settings["drainDeadlineSeconds"].parse().unwrap();
        let grace = "{{ add .Values.drainDeadlineSeconds 10 }}";
        assert!(filled.contains(grace), "{filled}");
        filled = filled.replace(grace, &(deadline + 10).to_string());
        for (name, default) in &settings {
            for quote in ["", " | quote"] {
                filled = filled.replace(&format!("{{{{ .Values.{name}{quote} }}}}"), default);
            }
        }
        let unmarked = manifest.lines().map(|line| line.split(MARK).next().unwrap_or(line));
        assert_eq!(filled.lines().collect::<Vec<_>>(), unmarked.collect::<Vec<_>>());
        for setting in ["replicas", "image", "zookeeper", "drainDeadlineSeconds"] {
            assert!(settings.contains_key(setting), "{setting} is not among {settings:?}");
        }
    }

    #[test]
    fn optional_parts_follow_their_settings() {
        let mut settings = BTreeMap::new();
        let manifest =
            "a: 40 # chart: time + 10\n  # chart if: on\n  b: 1\n  # chart end\n- --c=30 # chart: time\n";
        let made = template(manifest, &mut settings).unwrap();
        let expected = "a: {{ add .Values.time 10 }}\n{{- if .Values.on }}\n  b: 1\n{{- end }}\n- --c={{ .Values.time }}\n";
        assert_eq!(made, expected);
        assert_eq!(values(&settings).lines().last(), Some("time: 30"));
        assert!(template("a: 41 # chart: time + 10\n", &mut settings).is_err(), "it is another default");
    }

    #[test]
    fn setting_has_one_default_and_keeps_quotes() {
        let mut settings = BTreeMap::new();
        let made = template("a: \"2\" # chart: cpu\n- --b=30 # chart: time\nc: 5\n", &mut settings).unwrap();
        assert_eq!(made, "a: {{ .Values.cpu | quote }}\n- --b={{ .Values.time }}\nc: 5\n");
        assert_eq!(values(&settings).lines().last(), Some("time: 30"));
        assert!(template("a: 3 # chart: time\n", &mut settings).is_err());
        assert!(template("a: {{ b }}\n", &mut settings).is_err());
    }
}
