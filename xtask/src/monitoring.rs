//! Checks the files in `deploy/` for Prometheus and Grafana with Prometheus itself: its configuration, the alerts with
//! their tests, and the queries of the dashboard.
//!
//! A test of `taskwork-operator` checks that the metrics in them exist.

use std::{fs, process::Command};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::{step::Step, workspace};

/// The Debian package that has `promtool`.
pub(crate) const PACKAGES: &[&str] = &["prometheus"];

/// The folder to check.
const FOLDER: &str = "deploy/prometheus";
const DASHBOARD: &str = "deploy/grafana/taskwork.json";

/// The file of the dashboard's queries as rules, which promtool can check.
const QUERIES: &str = "target/monitoring/queries.yml";

/// Returns the steps; none, with a word about it, where promtool is missing.
///
/// # Errors
/// The dashboard cannot be read, or promtool is missing in CI.
pub(crate) fn steps() -> Result<Vec<Step>> {
    if !Command::new("promtool").arg("--version").output().is_ok_and(|it| it.status.success()) {
        let what =
            "there is no promtool (package prometheus): what is for Prometheus and Grafana is NOT CHECKED";
        ensure!(!workspace::in_ci(), what);
        eprintln!("\n!!! WARNING: {what}");
        return Ok(Vec::new());
    }
    let root = workspace::root();
    let dashboard = fs::read_to_string(root.join(DASHBOARD)).context(DASHBOARD)?;
    let queries = root.join(QUERIES);
    fs::create_dir_all(queries.parent().unwrap_or(&root))?;
    fs::write(queries, as_rules(&queries_of(&dashboard)?))?;
    Ok(vec![
        // It includes the alerts.
        Step::new("metrics", "promtool", ["check", "config", &format!("{FOLDER}/prometheus.yml")]),
        Step::new("alerts", "promtool", ["test", "rules", &format!("{FOLDER}/alerts_test.yml")]),
        Step::new("queries", "promtool", ["check", "rules", QUERIES]),
    ])
}

/// Returns the queries of a dashboard of Grafana, as Grafana sends them.
fn queries_of(dashboard: &str) -> Result<Vec<String>> {
    fn find(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(object) => {
                found.extend(object.get("expr").and_then(Value::as_str).map(asked));
                object.values().for_each(|value| find(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| find(value, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    find(&serde_json::from_str(dashboard).context(DASHBOARD)?, &mut found);
    ensure!(!found.is_empty(), "{DASHBOARD} has no query");
    Ok(found)
}

/// Substitutes Grafana's built-in variables in a query. The variables of the dashboard are only used in patterns, where
/// they may stay.
fn asked(query: &str) -> String {
    query.replace("$__rate_interval", "1m")
}

/// Returns rules that record the results of queries, as JSON, which is also YAML.
fn as_rules(queries: &[String]) -> String {
    let rule = |(number, query): (usize, &String)| serde_json::json!({ "record": format!("query:{number}"), "expr": query });
    let rules: Vec<_> = queries.iter().enumerate().map(rule).collect();
    serde_json::json!({ "groups": [{ "name": "queries", "rules": rules }] }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_queries_become_rules() {
        let dashboard = r#"{ "panels": [{ "targets": [{ "expr": "rate(a[$__rate_interval])" }] }, { "title": "none" }],
            "annotations": { "list": [{ "expr": "b{c=~\"$d\"} > 0" }] } }"#;
        let mut queries = queries_of(dashboard).unwrap();
        queries.sort();
        assert_eq!(queries, ["b{c=~\"$d\"} > 0", "rate(a[1m])"]);
        let rules: Value = serde_json::from_str(&as_rules(&queries)).unwrap();
        assert_eq!(rules["groups"][0]["rules"][1]["expr"], "rate(a[1m])");
    }

    #[test]
    fn dashboard_without_queries_is_an_error() {
        for dashboard in ["", "{", "{}", r#"{ "panels": [] }"#] {
            assert!(queries_of(dashboard).unwrap_err().to_string().contains(DASHBOARD), "{dashboard}");
        }
    }

    #[test]
    fn all_files_of_folder_are_checked() {
        let config = fs::read_to_string(workspace::root().join(FOLDER).join("prometheus.yml")).unwrap();
        let tests = fs::read_to_string(workspace::root().join(FOLDER).join("alerts_test.yml")).unwrap();
        for file in fs::read_dir(workspace::root().join(FOLDER)).unwrap() {
            let name = file.unwrap().file_name().to_string_lossy().into_owned();
            let is_checked = name == "prometheus.yml" || name == "alerts_test.yml";
            assert!(is_checked || config.contains(&name) && tests.contains(&name), "{name}");
        }
    }
}
