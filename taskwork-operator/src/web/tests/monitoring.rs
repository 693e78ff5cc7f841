//! What `deploy/` has for Prometheus and Grafana: whether it asks for what there is, and whether what is served is what
//! Prometheus reads.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::{Value, json};
use taskwork::{Figures, Health, client::NodeFigures};
use taskwork_cli::web::{
    exposition::{Format, PREFIX, text},
    family::{self, Family, Kind},
    node::of_node,
};

use super::{JOB, Server, cluster};
use crate::web::families::of_cluster;

/// The labels that Prometheus adds by its configuration. That of a cluster is in `prometheus.yml`.
const OF_TARGETS: [&str; 3] = ["cluster", "instance", "job"];
/// A metric that Prometheus makes itself.
const MADE_BY_PROMETHEUS: &str = "up";

/// Reads a file of `deploy/`.
fn deployed(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns a node that works on a job.
fn node() -> Health {
    let report: NodeFigures<Figures> = serde_json::from_value(json!({
        "attempt": 1, "last": false, "at_ms": 9, "figures": { "worked": 5, "tasks": 2 },
        "requests": { "reads": 1, "writes": 2, "multis": 3, "failed_multis": 4 },
        "pool": { "workers": 2, "busy": 1, "queued": 3, "waiting": 0, "hungry": 0 },
        "process": { "resident_bytes": 4096, "cpu_ms": 7, "load": 0.5 },
    }))
    .unwrap();
    let mut health = Health::default();
    health.jobs.insert(JOB.parse().unwrap(), report);
    health
}

/// Returns the names of samples that a dashboard serves, with the labels of each.
fn served() -> BTreeMap<String, BTreeSet<&'static str>> {
    let mut served = BTreeMap::new();
    for Family { name, kind, samples, .. } in of_cluster(&cluster().snapshot()) {
        let mut labels: BTreeSet<&str> =
            samples.iter().flat_map(|(labels, _)| labels).map(|(label, _)| *label).collect();
        if samples.is_empty() && name.starts_with("job_") {
            // The job of this cluster does not tell.
            labels.insert(family::JOB);
        }
        if samples.is_empty() && name.contains("cost") {
            // Nor have its nodes a price.
            labels.insert("currency");
        }
        let name = format!("{PREFIX}_{name}");
        match kind {
            Kind::Gauge => drop(served.insert(name, labels)),
            Kind::Counter => drop(served.insert(format!("{name}_total"), labels)),
            Kind::Histogram => {
                served.insert(format!("{name}_sum"), labels.clone());
                served.insert(format!("{name}_count"), labels.clone());
                labels.insert("le");
                served.insert(format!("{name}_bucket"), labels);
            }
        }
    }
    served
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Returns the metrics of ours in a text with queries, each with what follows it.
fn metrics(queries: &str) -> Vec<(&str, &str)> {
    let begins = queries.match_indices("taskwork_").map(|(begin, _)| begin);
    let own = begins.filter(|begin| !queries[..*begin].ends_with(is_of_name));
    own.map(|begin| {
        let end = queries[begin..].find(|c| !is_of_name(c)).map_or(queries.len(), |length| begin + length);
        (&queries[begin..end], &queries[end..])
    })
    .collect()
}

/// Returns the names in a list such as `(a, b)` or `{a="x", b=~"y"}` at the beginning of a text.
fn listed(text: &str, brackets: [char; 2]) -> Vec<&str> {
    let Some(rest) = text.strip_prefix(brackets[0]) else { return Vec::new() };
    let (mut names, mut begin, mut is_quoted, mut is_value) = (Vec::new(), 0, false, false);
    for (at, c) in rest.char_indices() {
        match c {
            '"' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            '=' | '!' | ',' if is_value => is_value = c != ',',
            '=' | '!' | ',' => {
                names.push(rest[begin..at].trim());
                is_value = c != ',';
            }
            _ if c == brackets[1] => {
                names.extend(Some(rest[begin..at].trim()).filter(|_| !is_value));
                break;
            }
            _ => {}
        }
        if c == ',' && !is_quoted {
            begin = at + 1;
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// Returns what follows each occurrence of a text.
fn after<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = &'a str> {
    text.match_indices(word).map(move |(at, _)| &text[at + word.len()..])
}

/// Returns what is wrong with the names in some queries and in texts with labels, which belong together.
fn wrong(queries: &str) -> Vec<String> {
    let served = served();
    let mut wrong = Vec::new();
    let mut known: BTreeSet<&str> = OF_TARGETS.into();
    for (name, rest) in metrics(queries) {
        let Some(labels) = served.get(name) else {
            wrong.push(format!("no metric {name}"));
            continue;
        };
        known.extend(labels);
        let its = |label: &&str| labels.contains(label) || OF_TARGETS.contains(label);
        let others = listed(rest, ['{', '}']).into_iter().filter(|label| !its(label));
        wrong.extend(others.map(|label| format!("{name} has no label {label}")));
    }
    let lists = ["by", "on", "without", "ignoring"]
        .into_iter()
        .flat_map(|word| after(queries, word).flat_map(|rest| listed(rest.trim_start(), ['(', ')'])));
    let name = |rest: &str| rest.trim_start().split(|c| !is_of_name(c)).next().unwrap_or_default().to_owned();
    let shown = after(queries, "$labels.").map(name);
    let legends = after(queries, "{{").filter(|rest| !rest.trim_start().starts_with('$')).map(name);
    let named: BTreeSet<String> = lists.map(str::to_owned).chain(shown).chain(legends).collect();
    let unknown = named.iter().filter(|label| !known.contains(label.as_str()));
    wrong.extend(unknown.map(|label| format!("none of these metrics has a label {label}: {queries}")));
    wrong
}

#[test]
fn names_that_do_not_exist_are_found() {
    for (queries, found) in [
        ("taskwork_nodes_lost > 0", "no metric taskwork_nodes_lost"),
        ("rate(taskwork_tasks_total{node=\"n1\"}[5m])", "taskwork_tasks_total has no label node"),
        ("taskwork_jobs{cluster=\"{a, b=c}\", stat=~\"running\"}", "taskwork_jobs has no label stat"),
        ("sum by (job_id, kind) (taskwork_tasks_total)", "a label kind"),
        ("taskwork_tasks_total {{ $labels.node }}", "a label node"),
        ("taskwork_tasks_total {{node}}", "a label node"),
        ("taskwork_steal_seconds{le=\"1\"}", "no metric taskwork_steal_seconds"),
    ] {
        let wrong = wrong(queries);
        assert!(wrong.len() == 1 && wrong[0].contains(found), "{queries}: {wrong:?}");
    }
    let right = "sum by (cluster, kind, le) (rate(taskwork_zk_request_seconds_bucket{kind!=\"read\",job_id=~\"a,b\"}[5m]))
        unless on (cluster) taskwork_unreadable_znodes {{ $value }} {{cluster}} {{ $labels.job_id }}";
    assert_eq!(wrong(right), [""; 0]);
}

#[test]
fn alerts_ask_for_what_there_is() {
    let alerts = deployed("prometheus/alerts.yml");
    let lines = alerts.lines().filter(|line| !line.trim_start().starts_with('#'));
    let alerts = lines.collect::<Vec<_>>().join("\n");
    let rules: Vec<&str> = alerts.split("- alert:").skip(1).collect();
    assert!(rules.len() >= 8);
    let mut names = BTreeSet::new();
    for rule in rules {
        let name = rule.lines().next().unwrap_or_default().trim();
        assert!(names.insert(name), "{name} twice");
        assert_eq!(wrong(rule), [""; 0], "{name}");
        let asks = !metrics(rule).is_empty() || rule.contains(&format!("expr: {MADE_BY_PROMETHEUS}{{"));
        assert!(asks, "{name}");
        for part in ["severity:", "summary:", "description:"] {
            assert!(rule.contains(part), "{name} has no {part}");
        }
    }
    let tests = deployed("prometheus/alerts_test.yml");
    for name in names {
        let fires = tests.split("- alertname:").filter(|case| case.trim_start().starts_with(name));
        let (fires, silent): (Vec<_>, Vec<_>) = fires.partition(|case| case.contains("exp_labels"));
        assert!(!fires.is_empty() && !silent.is_empty(), "it is not tested when {name} fires, or when not");
    }
    let collected = deployed("prometheus/prometheus.yml");
    assert!(collected.contains("job_name: taskwork\n") && collected.contains("cluster: default"));
}

/// Returns all objects in a value that have a key.
fn with_key<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a serde_json::Map<String, Value>>) {
    match value {
        Value::Object(object) => {
            found.extend(Some(object).filter(|object| object.contains_key(key)));
            object.values().for_each(|value| with_key(value, key, found));
        }
        Value::Array(values) => values.iter().for_each(|value| with_key(value, key, found)),
        _ => {}
    }
}

#[test]
fn the_dashboard_of_grafana_asks_for_what_there_is() {
    let dashboard: Value = serde_json::from_str(&deployed("grafana/taskwork.json")).unwrap();
    let mut queries = Vec::new();
    with_key(&dashboard, "expr", &mut queries);
    assert!(queries.len() > 30, "{}", queries.len());
    for query in queries {
        let texts = ["expr", "legendFormat", "titleFormat"].map(|key| query.get(key).and_then(Value::as_str));
        let text = texts.into_iter().flatten().collect::<Vec<_>>().join(" ");
        assert!(!metrics(&text).is_empty() && text.contains("cluster=~\"$cluster\""), "{text}");
        assert_eq!(wrong(&text), [""; 0]);
        assert_eq!(query["datasource"]["uid"], "${datasource}", "{text}");
    }
    let mut variables = Vec::new();
    with_key(&dashboard["templating"], "definition", &mut variables);
    let names: Vec<_> = variables.iter().map(|variable| variable["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["cluster", "job"]);
    for variable in variables {
        let asked = variable["definition"].as_str().unwrap();
        assert_eq!(variable["query"]["query"], asked);
        let (metric, label) = asked.rsplit_once(',').unwrap();
        let label = label.trim().trim_end_matches(')');
        assert_eq!(wrong(&format!("{metric} {{{{{label}}}}}")), [""; 0]);
    }
}

#[test]
fn the_panels_of_grafana_stand_beside_each_other_and_say_what_they_show() {
    let dashboard: Value = serde_json::from_str(&deployed("grafana/taskwork.json")).unwrap();
    let (mut taken, mut ids) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}");
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
        assert!(x + w <= 24 && w > 0 && h > 0, "{title}");
        for place in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(taken.insert(place), "{title} covers another panel");
        }
        let says = panel["description"].as_str().is_some_and(|text| text.ends_with('.'));
        assert!(panel["type"] == "row" || says, "{title}");
    }
}

/// Gives a text to promtool, which is in the package `prometheus`, and returns what it says; `None` if it is not there.
fn promtool(input: &str) -> Option<(bool, String)> {
    let spawned = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut promtool = match spawned {
        Ok(promtool) => promtool,
        Err(error) => {
            let is_needed = env::var_os("CI").is_some_and(|value| value == "true");
            assert!(!is_needed, "promtool, of the Debian package prometheus, does not start: {error}");
            eprintln!("!!! WARNING: there is no promtool: metrics are NOT CHECKED by it");
            return None;
        }
    };
    promtool.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let said = promtool.wait_with_output().unwrap();
    let text = [said.stdout, said.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    Some((said.status.success(), text))
}

#[test]
fn promtool_has_nothing_to_say_against_the_metrics() {
    let of_cluster = Server::replayed(&[]).get("/metrics").body().to_owned();
    let of_node = text(of_node(&node()), Format::Prometheus);
    for metrics in [of_cluster, of_node] {
        assert!(metrics.contains(&format!("{}=\"{JOB}\"", family::JOB)), "{metrics}");
        let Some(said) = promtool(&metrics) else { return };
        assert_eq!(said, (true, String::new()), "{metrics}");
        // It does look.
        let (is_well, _) = promtool(&metrics.replace("# HELP", "# ")).unwrap();
        assert!(!is_well);
    }
}
