//! Tests that the manifests in `deploy/` are consistent with each other, and with the behaviour of a node.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write as _},
    path::PathBuf,
};

use anyhow::Result;
use serde_json::Value;

use crate::{kubernetes::Tools, workspace};

/// The longest that a process takes to end after its drain deadline, in seconds.
pub(crate) const FAREWELL_S: u64 = 9;

fn folder() -> PathBuf {
    workspace::root().join("deploy/kubernetes")
}

fn parsed(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).expect("it is YAML")
}

/// Returns the unrendered manifests of these folders.
fn plain(folders: &[&str]) -> Vec<Value> {
    let mut all = Vec::new();
    for name in folders {
        for entry in fs::read_dir(folder().join(name)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|end| end == "yaml") && !path.ends_with("kustomization.yaml") {
                all.extend(parsed(&fs::read_to_string(path).unwrap()));
            }
        }
    }
    all
}

/// Returns the rendered manifests of an overlay or the chart; `None` without the program for it.
fn made(what: &str, made: Result<Option<Vec<u8>>>) -> Option<Vec<Value>> {
    let Some(made) = made.unwrap() else {
        let word = format!("{what} is NOT TESTED: `cargo xtask check` installs what it needs");
        assert!(!workspace::in_ci(), "{word}");
        // Not by a macro: its output is captured if the test passes.
        let _ = writeln!(io::stderr(), "\n!!! WARNING: {word}");
        return None;
    };
    Some(parsed(&String::from_utf8(made).unwrap()))
}

fn find<'a>(all: &'a [Value], kind: &str, name: &str) -> Option<&'a Value> {
    all.iter().find(|one| one["kind"] == kind && one["metadata"]["name"] == name)
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn each(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Returns whether a selector has labels, and a pod has all of them.
fn selects(selector: &Value, pod: &Value) -> bool {
    let labels = selector["matchLabels"].as_object();
    labels.is_some_and(|labels| {
        !labels.is_empty() && labels.iter().all(|(name, value)| pod["metadata"]["labels"][name] == *value)
    })
}

/// Returns the protocols and ports of some rules of a network policy.
fn ports(rules: &Value) -> Vec<(String, u64)> {
    let ports = each(rules).flat_map(|rule| each(&rule["ports"]));
    ports.filter_map(|port| Some((port["protocol"].as_str()?.to_owned(), port["port"].as_u64()?))).collect()
}

/// Returns everything that is wrong with the probes of a node, which serves its health at an address.
fn wrong_with_probes(container: &Value, serves_at: Option<&str>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut must = |holds: bool, what: &str| {
        if !holds {
            wrong.push(what.to_owned());
        }
    };
    let probe = |name: &str| texts(&container[name]["exec"]["command"]);
    // The default address of `health`.
    must(serves_at == Some("127.0.0.1:8788"), "the probes use an address at which no node answers");
    must(
        probe("readinessProbe") == ["/proc/1/exe", "health", "--ready"],
        "the readiness of a node is unknown",
    );
    must(probe("livenessProbe") == ["/proc/1/exe", "health"], "a node is ended because of something else");
    let patience = |what: &str| container["livenessProbe"][what].as_u64().unwrap_or_default();
    must(patience("periodSeconds") * patience("failureThreshold") >= 60, "a node is ended too soon");
    wrong
}

/// Returns everything that is wrong with the nodes.
fn wrong_with_nodes(all: &[Value]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut must = |holds: bool, what: &str| {
        if !holds {
            wrong.push(what.to_owned());
        }
    };
    let (Some(nodes), Some(budget), Some(network)) = (
        find(all, "Deployment", "taskwork-node"),
        find(all, "PodDisruptionBudget", "taskwork-node"),
        find(all, "NetworkPolicy", "taskwork-node"),
    ) else {
        return vec!["a manifest is missing".to_owned()];
    };
    let pod = &nodes["spec"]["template"];
    let container = &pod["spec"]["containers"][0];
    let args = texts(&container["args"]);
    let option = |name: &str| args.iter().find_map(|arg| arg.strip_prefix(name)?.strip_prefix('='));
    let env: BTreeMap<&str, &Value> =
        each(&container["env"]).filter_map(|one| Some((one["name"].as_str()?, one))).collect();
    let variable = |name: &str| env.get(name).and_then(|one| one["value"].as_str());

    let deadline: Option<u64> = option("--drain-deadline").and_then(|text| text.parse().ok());
    let grace = pod["spec"]["terminationGracePeriodSeconds"].as_u64();
    must(
        deadline.zip(grace).is_some_and(|(deadline, grace)| grace >= deadline + FAREWELL_S),
        "a node is killed before its drain is over",
    );
    let port: Option<u64> = option("--listen").and_then(|at| at.rsplit_once(':')?.1.parse().ok());
    let offered = ("UDP".to_owned(), port.unwrap_or_default());
    let container_port = &container["ports"][0];
    must(
        container_port["containerPort"].as_u64() == port && container_port["protocol"] == "UDP",
        "the port of the container is another one",
    );
    must(ports(&network["spec"]["ingress"]).contains(&offered), "no node is reached by others");
    must(ports(&network["spec"]["egress"]).contains(&offered), "no node reaches others");
    must(ports(&network["spec"]["egress"]).contains(&("UDP".to_owned(), 53)), "no name can be looked up");
    let servers: Vec<&str> = variable("TASKWORK_ZK").unwrap_or_default().split(',').collect();
    let is_let_through = |server: &&str| {
        let port = server.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        port.is_some_and(|port| ports(&network["spec"]["egress"]).contains(&("TCP".to_owned(), port)))
    };
    must(servers.iter().all(is_let_through), "ZooKeeper is not reached");
    must(option("--advertise") == Some("$(POD_IP)") && env.contains_key("POD_IP"), "no address for others");
    must(
        args.contains(&"--insecure") != env.contains_key("TASKWORK_ZK_TLS_CA"),
        "credentials go in the clear without a word, or over TLS with one too many",
    );
    let mounts: Vec<&str> =
        each(&container["volumeMounts"]).filter_map(|mount| mount["mountPath"].as_str()).collect();
    for file in ["TASKWORK_ZK_AUTH", "TASKWORK_ZK_TLS_CA", "TASKWORK_ZK_TLS_CERT", "TASKWORK_ZK_TLS_KEY"] {
        let place = variable(file).and_then(|file| file.rsplit_once('/')).map(|(place, _)| place);
        let is_needed = file == "TASKWORK_ZK_AUTH";
        must(place.map_or(!is_needed, |place| mounts.contains(&place)), "a file of secrets is not there");
    }
    must(pod["spec"]["securityContext"]["fsGroup"].is_u64(), "the program cannot read its secrets");
    must(container["resources"]["limits"]["cpu"].is_string(), "the number of workers is unknown");
    let machine = env.get("TASKWORK_MACHINE").map(|one| &one["valueFrom"]["fieldRef"]["fieldPath"]);
    must(
        machine.is_some_and(|path| path == "metadata.name"),
        "the controller does not find the node of a pod",
    );
    for selector in [&nodes["spec"]["selector"], &budget["spec"]["selector"], &network["spec"]["podSelector"]]
    {
        must(selects(selector, pod), "something is for other pods than these");
    }
    wrong.extend(wrong_with_probes(container, option("--health")));
    wrong
}

/// Returns everything that is wrong with ZooKeeper.
fn wrong_with_zookeeper(all: &[Value]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut must = |holds: bool, what: &str| {
        if !holds {
            wrong.push(what.to_owned());
        }
    };
    let (Some(servers), Some(network), Some(nodes), Some(service), Some(configuration)) = (
        find(all, "StatefulSet", "zookeeper"),
        find(all, "NetworkPolicy", "zookeeper"),
        find(all, "Deployment", "taskwork-node"),
        find(all, "Service", "zookeeper"),
        find(all, "ConfigMap", "zookeeper"),
    ) else {
        return vec!["a manifest is missing".to_owned()];
    };
    let pod = &servers["spec"]["template"];
    let count = servers["spec"]["replicas"].as_u64().unwrap_or_default();
    let lines = configuration["data"]["zoo.cfg"].as_str().unwrap_or_default();
    let named = |server: u64| {
        lines.contains(&format!("server.{server}=zookeeper-{}.zookeeper:2888:3888", server - 1))
    };
    let names = lines.lines().filter(|line| line.starts_with("server.")).count() as u64;
    must(
        if count == 1 { names == 0 } else { names == count && (1..=count).all(named) },
        "the servers do not know each other",
    );
    let all_hosts: Vec<String> =
        (0..count).map(|number| format!("zookeeper-{number}.zookeeper:2181")).collect();
    let env = each(&nodes["spec"]["template"]["spec"]["containers"][0]["env"]);
    let hosts = env.into_iter().find(|one| one["name"] == "TASKWORK_ZK").map(|one| one["value"].clone());
    must(hosts == Some(Value::from(all_hosts.join(","))), "the nodes know other servers");
    let client = &network["spec"]["ingress"][0];
    must(selects(&client["from"][0]["podSelector"], &nodes["spec"]["template"]), "nodes are kept out");
    must(ports(&network["spec"]["ingress"]).contains(&("TCP".to_owned(), 2181)), "clients are kept out");
    must(service["spec"]["publishNotReadyAddresses"] == true, "servers do not find each other at the start");
    must(service["spec"]["selector"]["app.kubernetes.io/name"] == "zookeeper", "the service is for others");
    let container = &pod["spec"]["containers"][0];
    let ready = texts(&container["readinessProbe"]["exec"]["command"]).join(" ");
    must(ready.contains("srvr") && ready.contains("Mode:"), "a server is ready before it is");
    must(!ready.contains("zkServer.sh"), "each probe of a server starts a Java machine");
    let is_read_only = container["securityContext"]["readOnlyRootFilesystem"] == true;
    must(is_read_only, "a server may change its own program");
    must(container["livenessProbe"]["exec"].is_null(), "a server without its peers is ended");
    must(selects(&servers["spec"]["selector"], pod), "the servers are others");
    wrong
}

#[test]
fn manifests_are_consistent_with_each_other() {
    let all = plain(&["base", "zookeeper"]);
    assert_eq!(wrong_with_nodes(&all), Vec::<String>::new());
    assert_eq!(wrong_with_zookeeper(&all), Vec::<String>::new());
}

/// Returns the images of all containers.
fn images(all: &[Value]) -> Vec<&str> {
    let pods = all.iter().map(|one| &one["spec"]["template"]["spec"]["containers"]);
    pods.flat_map(each).filter_map(|container| container["image"].as_str()).collect()
}

fn is_pinned(image: &str) -> bool {
    let tag = image.rsplit_once(':').map_or("", |(_, tag)| tag);
    tag.split('.').count() == 3 && tag.split('.').all(|part| part.parse::<u32>().is_ok())
}

#[test]
fn images_have_fixed_versions() {
    let mut all = plain(&["base", "zookeeper", "dashboard", "components/scale"]);
    all.extend(parsed(&fs::read_to_string(folder().join("submit.yaml")).unwrap()));
    let images = images(&all);
    assert_eq!(images.len(), 5, "{images:?}");
    for image in images {
        assert!(is_pinned(image), "{image}");
    }
    assert!(!["zookeeper:3.9", "taskwork:latest", "taskwork"].into_iter().any(is_pinned));
}

#[test]
fn overlays_are_consistent() {
    let tools = Tools::find();
    for (overlay, has_zookeeper) in [("dev", true), ("elastic", true), ("production", false), ("spot", true)]
    {
        let made = made(&format!("the overlay {overlay}"), tools.overlay(&format!("overlays/{overlay}")));
        let Some(all) = made else { return };
        assert_eq!(wrong_with_nodes(&all), Vec::<String>::new(), "{overlay}");
        assert_eq!(find(&all, "StatefulSet", "zookeeper").is_some(), has_zookeeper);
        if has_zookeeper {
            assert_eq!(wrong_with_zookeeper(&all), Vec::<String>::new(), "{overlay}");
        }
        if overlay == "spot" {
            let servers = &find(&all, "StatefulSet", "zookeeper").unwrap()["spec"]["template"]["spec"];
            let where_they_may_be = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
            let terms = &servers.pointer(where_they_may_be).unwrap()["nodeSelectorTerms"];
            // The terms are alternatives, so one of them must contain all conditions.
            assert_eq!((each(terms).count(), each(&terms[0]["matchExpressions"]).count()), (1, 3));
            assert!(
                servers["affinity"]["podAntiAffinity"].is_object(),
                "each server is on a separate machine"
            );
        }
    }
}

#[test]
fn chart_is_consistent_and_refuses_invalid_settings() {
    let tools = Tools::find();
    let chart = |settings: &[&str]| made("the chart", tools.chart(settings));
    let Some(all) = chart(&[]) else { return };
    assert_eq!(wrong_with_nodes(&all), Vec::<String>::new());
    assert_eq!(wrong_with_zookeeper(&all), Vec::<String>::new());
    let grace = |all: &[Value]| {
        let nodes = find(all, "Deployment", "taskwork-node").unwrap();
        nodes.pointer("/spec/template/spec/terminationGracePeriodSeconds").and_then(Value::as_u64)
    };
    let spot = chart(&["drainDeadlineSeconds=5"]).unwrap();
    assert_eq!((wrong_with_nodes(&spot), grace(&spot)), (Vec::new(), Some(15)));

    let elsewhere = ["withZookeeper=false", "zookeeper=zk1.example.org:2181"];
    let refused = tools.chart(&elsewhere).unwrap_err().to_string();
    assert!(refused.contains("overlays/production") && refused.contains("insecure=true"), "{refused}");
    let all = chart(&[&elsewhere[..], &["insecure=true"]].concat()).unwrap();
    assert_eq!(wrong_with_nodes(&all), Vec::<String>::new());
    assert!(find(&all, "StatefulSet", "zookeeper").is_none());
    let network = find(&all, "NetworkPolicy", "taskwork-node").unwrap();
    assert!(network["spec"]["egress"][1]["to"].is_null(), "ZooKeeper is not among the pods");
}

#[test]
fn controller_role_has_exactly_required_permissions() {
    let Some(all) = made("the overlay elastic", Tools::find().overlay("overlays/elastic")) else { return };
    let nodes = find(&all, "Deployment", "taskwork-node").unwrap();
    assert!(nodes["spec"]["replicas"].is_null(), "applying it again would change the number of nodes");
    let controller = &find(&all, "Deployment", "taskwork-scale").unwrap()["spec"]["template"]["spec"];
    assert_eq!(controller["serviceAccountName"], "taskwork-scale");
    let binding = find(&all, "RoleBinding", "taskwork-scale").unwrap();
    assert_eq!(
        (&binding["roleRef"]["name"], &binding["subjects"][0]["name"]),
        (&"taskwork-scale".into(), &"taskwork-scale".into())
    );
    let file = find(&all, "ConfigMap", "taskwork-scale").unwrap()["data"]["connector.json"].as_str().unwrap();
    let connector: Value = serde_json::from_str(file).unwrap();
    assert_eq!(
        (&connector["kind"], &connector["deployments"]["pods"]),
        (&"kubernetes".into(), &nodes["metadata"]["name"])
    );
    let limit = &nodes["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"];
    assert_eq!(
        connector["offers"][0]["workers"].to_string(),
        limit.as_str().unwrap(),
        "as many as a node starts"
    );
    // The requests in src/connector/kubernetes/api.rs of taskwork-scale.
    let role = find(&all, "Role", "taskwork-scale").unwrap();
    let rules: Vec<_> = each(&role["rules"])
        .map(|rule| (texts(&rule["resources"]), texts(&rule["verbs"]), texts(&rule["resourceNames"])))
        .collect();
    assert_eq!(
        rules,
        [
            (vec!["deployments"], vec!["get", "patch"], vec!["taskwork-node"]),
            (vec!["pods"], vec!["list", "patch", "delete"], vec![]),
        ]
    );
}

/// Returns the faults of the dashboard's manifests.
fn wrong_with_dashboard(all: &[Value]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut must = |holds: bool, what: &str| {
        if !holds {
            wrong.push(what.to_owned());
        }
    };
    let (Some(deployment), Some(service), Some(network)) = (
        find(all, "Deployment", "taskwork-dashboard"),
        find(all, "Service", "taskwork-dashboard"),
        find(all, "NetworkPolicy", "taskwork-dashboard"),
    ) else {
        return vec!["a manifest is missing".to_owned()];
    };
    let pod = &deployment["spec"]["template"];
    let container = &pod["spec"]["containers"][0];
    let args = texts(&container["args"]);
    let listens = args.iter().find_map(|arg| arg.strip_prefix("--listen=0.0.0.0:")?.parse::<u64>().ok());
    let port = &container["ports"][0];
    must(
        listens.is_some() && port["containerPort"].as_u64() == listens,
        "the port of the container is another one",
    );
    must(service["spec"]["ports"][0]["targetPort"] == port["name"], "the service leads to another port");
    let selected = service["spec"]["selector"].as_object();
    must(
        selected.is_some_and(|labels| {
            labels.iter().all(|(name, value)| pod["metadata"]["labels"][name] == *value)
        }),
        "the service selects other pods",
    );
    must(
        selects(&network["spec"]["podSelector"], pod)
            && ports(&network["spec"]["ingress"]).contains(&("TCP".to_owned(), listens.unwrap_or_default())),
        "the network policy hides the dashboard",
    );
    for probe in ["readinessProbe", "livenessProbe"] {
        let get = &container[probe]["httpGet"];
        must(
            get["path"] == "/livez" && get["scheme"] == "HTTPS" && get["port"] == port["name"],
            "a probe would hide the dashboard during an outage of ZooKeeper",
        );
    }
    let mounts: Vec<&str> =
        each(&container["volumeMounts"]).filter_map(|one| one["mountPath"].as_str()).collect();
    for option in ["--tls-cert=", "--tls-key=", "--token-file="] {
        let file = args.iter().find_map(|arg| arg.strip_prefix(option));
        must(
            file.is_some_and(|file| mounts.iter().any(|mount| file.starts_with(&format!("{mount}/")))),
            "a file of the dashboard is in no volume",
        );
    }
    wrong
}

#[test]
fn dashboard_is_reachable_with_its_secrets() {
    let all = plain(&["dashboard"]);
    assert_eq!(wrong_with_dashboard(&all), Vec::<String>::new());
    for (kind, path, value) in [
        ("Deployment", "/spec/template/spec/containers/0/ports/0/containerPort", 8788.into()),
        ("Deployment", "/spec/template/spec/containers/0/readinessProbe/httpGet/path", "/readyz".into()),
        ("Deployment", "/spec/template/spec/containers/0/volumeMounts/1/mountPath", "/elsewhere".into()),
        ("Service", "/spec/ports/0/targetPort", "http".into()),
        ("Service", "/spec/selector/app.kubernetes.io~1name", "other".into()),
        ("NetworkPolicy", "/spec/ingress", Value::Array(Vec::new())),
    ] {
        let mut all = all.clone();
        *all.iter_mut().find(|one| one["kind"] == kind).unwrap().pointer_mut(path).unwrap() = value;
        assert!(!wrong_with_dashboard(&all).is_empty(), "{kind} {path}");
    }
    let Some(elastic) = made("the overlay elastic", Tools::find().overlay("overlays/elastic")) else {
        return;
    };
    assert_eq!(wrong_with_dashboard(&elastic), Vec::<String>::new());
    let chart = Tools::find().chart(&["withDashboard=true"]);
    let Some(chart) = made("the chart", chart) else { return };
    assert_eq!(wrong_with_dashboard(&chart), Vec::<String>::new());
}

/// A check that cannot fail would be worth nothing.
#[test]
fn inconsistencies_are_detected() {
    let cases: [(&str, &str, Value, &str); 7] = [
        ("Deployment", "/spec/template/spec/terminationGracePeriodSeconds", 38.into(), "killed"),
        ("Deployment", "/spec/template/spec/containers/0/args/1", "--listen=0.0.0.0:7421".into(), "port"),
        (
            "Deployment",
            "/spec/template/spec/containers/0/livenessProbe/exec/command/1",
            "x".into(),
            "something else",
        ),
        (
            "Deployment",
            "/spec/template/spec/containers/0/livenessProbe/failureThreshold",
            1.into(),
            "too soon",
        ),
        ("PodDisruptionBudget", "/spec/selector/matchLabels", serde_json::json!({"a": "b"}), "other pods"),
        ("NetworkPolicy", "/spec/egress/1/ports", Value::Array(Vec::new()), "ZooKeeper"),
        ("Deployment", "/spec/template/spec/containers/0/volumeMounts", Value::Null, "secrets"),
    ];
    for (kind, path, value, says) in cases {
        let mut all = plain(&["base"]);
        let one = all.iter_mut().find(|one| one["kind"] == kind).unwrap();
        *one.pointer_mut(path).unwrap() = value;
        let wrong = wrong_with_nodes(&all);
        assert!(wrong.iter().any(|what| what.contains(says)), "{path}: {wrong:?}");
    }
    let mut all = plain(&["base", "zookeeper"]);
    let servers = all.iter_mut().find(|one| one["kind"] == "StatefulSet").unwrap();
    servers["spec"]["replicas"] = 5.into();
    assert_eq!(wrong_with_zookeeper(&all).len(), 2);
}
