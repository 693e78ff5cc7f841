//! `cargo xtask chart`: the Helm chart, generated from the manifests of `deploy/kubernetes`.
//!
//! A line of a manifest that ends with `# chart: NAME` becomes a setting of the chart: its value is the default.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use anyhow::{Context as _, Result, bail, ensure};

use crate::workspace;

/// The files of the chart, by their paths in its folder.
type Chart = BTreeMap<String, String>;

/// The manifests, and the settings without which they are left out.
const SOURCES: [(&str, Option<&str>); 2] = [("base", None), ("zookeeper", Some("withZookeeper"))];

const KUBERNETES: &str = "deploy/kubernetes";
const CHART: &str = "deploy/helm/taskwork";
const MARK: &str = " # chart: ";
const GENERATED: &str = "# Generated from deploy/kubernetes by `cargo xtask chart`: change it there.\n";

/// Writes the chart.
///
/// # Errors
/// A manifest cannot be read, or says different things of one setting; or a file cannot be written.
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
        let from = root.join(KUBERNETES).join(folder);
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
            chart.insert(format!("templates/{folder}-{name}"), format!("{GENERATED}{template}"));
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
    for line in manifest.lines() {
        let Some((line, setting)) = line.split_once(MARK) else {
            template.push_str(line);
            template.push('\n');
            continue;
        };
        let Some(at) = line.rfind(": ").map(|at| at + 2).or(line.rfind('=').map(|at| at + 1)) else {
            bail!("{line:?} has no value for the setting {setting}");
        };
        let (key, value) = line.split_at(at);
        let before = settings.insert(setting.to_owned(), value.to_owned());
        ensure!(before.is_none_or(|before| before == value), "{setting} has two defaults");
        let quote = if value.starts_with('"') { " | quote" } else { "" };
        writeln!(template, "{key}{{{{ .Values.{setting}{quote} }}}}")?;
    }
    Ok(template)
}

fn values(settings: &BTreeMap<String, String>) -> String {
    let mut values =
        format!("{GENERATED}# Whether the chart brings ZooKeeper along; otherwise say below where it is.\n");
    values.push_str("withZookeeper: true\n");
    for (name, default) in settings {
        let _infallible = writeln!(values, "{name}: {default}");
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chart_is_current() {
        let folder = workspace::root().join(CHART);
        for (name, content) in chart(&workspace::root()).unwrap() {
            let there = fs::read_to_string(folder.join(&name)).unwrap_or_default();
            assert!(there == content, "{name} is not current: run `cargo xtask chart`");
        }
    }

    #[test]
    fn with_its_defaults_the_chart_is_the_manifests() {
        let mut settings = BTreeMap::new();
        let manifest =
            fs::read_to_string(workspace::root().join(KUBERNETES).join("base/nodes.yaml")).unwrap();
        let mut filled = template(&manifest, &mut settings).unwrap();
        for (name, default) in &settings {
            for quote in ["", " | quote"] {
                filled = filled.replace(&format!("{{{{ .Values.{name}{quote} }}}}"), default);
            }
        }
        let unmarked = manifest.lines().map(|line| line.split(MARK).next().unwrap_or(line));
        assert_eq!(filled.lines().collect::<Vec<_>>(), unmarked.collect::<Vec<_>>());
        for setting in ["replicas", "image", "zookeeper", "drainDeadlineSeconds", "gracePeriodSeconds"] {
            assert!(settings.contains_key(setting), "{setting} is not among {settings:?}");
        }
    }

    #[test]
    fn a_setting_has_one_default_and_quotes_stay() {
        let mut settings = BTreeMap::new();
        let made = template("a: \"2\" # chart: cpu\n- --b=30 # chart: time\nc: 5\n", &mut settings).unwrap();
        assert_eq!(made, "a: {{ .Values.cpu | quote }}\n- --b={{ .Values.time }}\nc: 5\n");
        assert_eq!(values(&settings).lines().last(), Some("time: 30"));
        assert!(template("a: 3 # chart: time\n", &mut settings).is_err());
        assert!(template("a: {{ b }}\n", &mut settings).is_err());
    }
}
