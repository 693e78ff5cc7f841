//! The choice of nodes by name, host or label.

use taskwork::{
    Labels, NodeId,
    client::{Overview, records::Member},
};
use taskwork_cli::Failure;

use super::connection::Connection;

/// The nodes of a command.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Selection {
    /// The nodes, as `taskwork nodes` lists them; prefixes suffice. A host name means all nodes on this host.
    #[arg(value_name = "NODE", required_unless_present = "labels")]
    nodes: Vec<String>,
    /// All nodes with this label. If it is repeated, those with all of the labels.
    #[arg(
        long = "label", value_name = "NAME=VALUE", value_parser = str::parse::<Labels>, conflicts_with = "nodes"
    )]
    labels: Vec<Labels>,
}

impl Selection {
    /// Returns whether the nodes are selected by labels.
    pub(super) fn is_by_label(&self) -> bool {
        !self.labels.is_empty()
    }

    /// Returns the selected nodes.
    ///
    /// # Errors
    /// If one of the names is unknown or ambiguous, or no node has the labels.
    pub(super) async fn of(&self, connection: &Connection) -> Result<Vec<NodeId>, Failure> {
        let overview = connection.overview().await?;
        let cluster = connection.client.cluster_name();
        let mut nodes = Vec::new();
        for member in self.members(&overview, cluster)? {
            let node = member.node.parse().map_err(|error| none(format!("{}: {error}", member.node)))?;
            // A second request to a node has another effect.
            if !nodes.contains(&node) {
                nodes.push(node);
            }
        }
        Ok(nodes)
    }

    fn members<'a>(&self, overview: &'a Overview, cluster: &str) -> Result<Vec<&'a Member>, Failure> {
        let mut members = Vec::new();
        for name in &self.nodes {
            members.extend(named(&overview.members, name, cluster)?);
        }
        if self.is_by_label() {
            members.extend(overview.members.iter().filter(|member| has_all(member, &self.labels)));
            if members.is_empty() {
                let labels: Vec<String> = self.labels.iter().map(Labels::to_string).collect();
                return Err(none(format!("no node of cluster {cluster} has {}", labels.join(","))));
            }
        }
        Ok(members)
    }
}

/// Returns whether a member has all labels.
pub(super) fn has_all(member: &Member, labels: &[Labels]) -> bool {
    labels.iter().all(|labels| labels.missing_from(&member.labels).is_empty())
}

/// Returns the node called `name`, all nodes on the host of this name, or the only node with a name that starts with it. A host
/// comes before a prefix: hosts may have short names, such as `n1`.
///
/// # Errors
/// If there is none, several nodes have such names, or `name` is empty.
pub(super) fn named<'a>(
    members: &'a [Member],
    name: &str,
    cluster: &str,
) -> Result<Vec<&'a Member>, Failure> {
    if name.is_empty() {
        return Err(Failure::usage(
            "the name of a node is empty: give a node or a host, as `taskwork nodes` lists them",
        ));
    }
    let of = |is_meant: &dyn Fn(&Member) -> bool| -> Vec<&'a Member> {
        members.iter().filter(|member| is_meant(member)).collect()
    };
    let (exact, on_host) = (of(&|member| member.node == name), of(&|member| member.host == name));
    let by_prefix = of(&|member| member.node.starts_with(name));
    match (exact.is_empty(), on_host.is_empty(), by_prefix.len()) {
        (false, ..) => Ok(exact),
        (true, false, _) => Ok(on_host),
        (true, true, 1) => Ok(by_prefix),
        (true, true, 0) => Err(none(format!("no node or host of cluster {cluster} is called {name:?}"))),
        (true, true, count) => Err(none(format!("{count} nodes are called {name}…: use a longer prefix"))),
    }
}

fn none(reason: String) -> Failure {
    Failure::not_found(reason)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn member(node: &str, host: &str, labels: &str) -> Member {
        let labels: serde_json::Value = serde_json::from_str(labels).unwrap();
        let member = json!({
            "node": node, "host": host, "labels": labels, "address": null, "fingerprint": "", "workers": 1,
            "program": "tree", "program_version": "1", "started_ms": 0,
        });
        serde_json::from_value(member).unwrap()
    }

    #[test]
    fn node_is_found_by_prefix_and_all_nodes_by_their_host() {
        let members =
            [member("n12", "gpu-17", "{}"), member("n13", "gpu-17", "{}"), member("n2", "n1", "{}")];
        let of = |name| {
            let found = named(&members, name, "c").map_err(|failure| failure.to_string())?;
            Ok::<_, String>(found.iter().map(|member| member.node.as_str()).collect::<Vec<_>>())
        };
        assert_eq!(of("n12").unwrap(), ["n12"]);
        assert_eq!(of("gpu-17").unwrap(), ["n12", "n13"]);
        assert_eq!(of("n1").unwrap(), ["n2"], "a whole host name is no prefix");
        assert_eq!(of("n2").unwrap(), ["n2"]);
        assert!(of("").unwrap_err().contains("is empty"));
        let members = [member("n12", "x", "{}"), member("n2", "n1", "{}")];
        let found = named(&members, "n1", "c").unwrap();
        assert_eq!(found[0].node, "n2", "also if the prefix is not ambiguous");
        assert!(of("n").unwrap_err().contains("3 nodes are called n…"));
        assert!(of("x").unwrap_err().contains("no node or host of cluster c is called \"x\""));
    }

    #[test]
    fn node_with_all_labels_is_selected() {
        let labels = ["zone=a", "gpu=yes"].map(|label| label.parse().unwrap());
        assert!(has_all(&member("n1", "", r#"{"zone": "a", "gpu": "yes", "x": "1"}"#), &labels));
        assert!(!has_all(&member("n1", "", r#"{"zone": "a"}"#), &labels));
    }
}
