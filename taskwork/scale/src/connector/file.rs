//! A connector's file: the source of machines, the offers and their prices.
//!
//! JSON, with the kind of connector, its offers, and the settings of that kind:
//!
//! ```json
//! {
//!   "kind": "local",
//!   "currency": "EUR",
//!   "program": ["tsp", "node", "--zk", "127.0.0.1:2181", "--workers", "1"],
//!   "folder": "machines",
//!   "offers": [{"name": "process", "workers": 1, "price_per_hour": 0.05, "max": 12}]
//! }
//! ```

use std::{
    collections::BTreeSet,
    fs,
    io::Read as _,
    path::{Path, PathBuf},
};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use thiserror::Error;

use super::{Connector, MachineId, Offer, command, kubernetes, local, several, slurm};

/// The maximum size of a connector's file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
const OFFERS_MAX: usize = 100;
const OFFER_MACHINES_MAX: u32 = 5_000;

/// A connector that is ready for use.
#[derive(Debug)]
pub struct Opened {
    /// The connector.
    pub connector: Box<dyn Connector>,
    /// The currency of prices, such as `EUR`; `None` if the file does not specify it.
    pub currency: Option<String>,
}

/// An invalid connector's file.
#[derive(Debug, Error)]
#[error("{}: {reason}", file.display())]
pub struct FileError {
    file: PathBuf,
    reason: String,
}

/// The common settings of all kinds of connectors.
#[derive(Debug, Clone)]
pub struct Common {
    /// The cluster of the nodes on the machines.
    pub cluster: String,
    /// The folder of the connector's file, which relative paths in it start from.
    pub folder: PathBuf,
    /// The kinds of machines.
    pub offers: Vec<Offer>,
    /// The currency of prices.
    pub currency: Option<String>,
}

/// The common fields of all files.
#[derive(Deserialize)]
struct Head {
    kind: String,
    #[serde(default)]
    currency: Option<String>,
    offers: Vec<Offer>,
}

/// Reads a connector's file, and opens the connector for a cluster.
///
/// # Errors
/// If the file cannot be read, or is invalid.
pub fn open(file: &Path, cluster: &str) -> Result<Opened, FileError> {
    open_by(file, cluster, parse)
}

/// Opens a file that another one names.
pub(super) fn open_part(file: &Path, cluster: &str) -> Result<Opened, FileError> {
    open_by(file, cluster, parse_one)
}

fn open_by(
    file: &Path,
    cluster: &str,
    parse: fn(&str, &str, &Path) -> Result<Opened, String>,
) -> Result<Opened, FileError> {
    let failed = |reason: String| FileError { file: file.to_owned(), reason };
    let mut text = String::new();
    // A device has size 0, but may have endless content.
    let read =
        fs::File::open(file).and_then(|opened| opened.take(FILE_BYTES_MAX + 1).read_to_string(&mut text));
    read.map_err(|error| failed(error.to_string()))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(failed(format!("a connector's file has at most {FILE_BYTES_MAX} bytes")));
    }
    let folder = file.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    parse(&text, cluster, folder).map_err(failed)
}

/// Opens the connector described by a text. Relative paths in it start from a folder.
///
/// # Errors
/// If the text is invalid.
pub fn parse(text: &str, cluster: &str, folder: &Path) -> Result<Opened, String> {
    let mut rest = fields(text)?;
    if is_several(&rest) {
        rest.remove("kind");
        return several::Several::open(settings(rest)?, cluster, folder);
    }
    parse_one(text, cluster, folder)
}

fn fields(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|error| format!("expected a connector's file, in JSON: {error}"))
}

fn is_several(fields: &Map<String, Value>) -> bool {
    fields.get("kind").is_some_and(|kind| kind == "several")
}

/// Opens the connector of one provider.
fn parse_one(text: &str, cluster: &str, folder: &Path) -> Result<Opened, String> {
    let mut rest = fields(text)?;
    if is_several(&rest) {
        return Err("a connector of kind \"several\" names files of other kinds only".to_owned());
    }
    let mut head = Map::new();
    for name in ["kind", "currency", "offers"] {
        head.extend(rest.remove(name).map(|value| (name.to_owned(), value)));
    }
    let head: Head = serde_json::from_value(Value::Object(head)).map_err(|error| error.to_string())?;
    check(&head.offers, head.currency.as_deref())?;
    let common = Common {
        cluster: cluster.to_owned(),
        folder: folder.to_owned(),
        offers: head.offers,
        currency: head.currency.clone(),
    };
    let connector: Box<dyn Connector> = match head.kind.as_str() {
        "local" => Box::new(local::Local::new(common, settings(rest)?)?),
        "command" => Box::new(command::Command::new(common, settings(rest)?)?),
        "slurm" => Box::new(slurm::Slurm::new(common, settings(rest)?)?),
        "kubernetes" => Box::new(kubernetes::Kubernetes::new(common, settings(rest)?)?),
        other => {
            return Err(format!(
                "there is no connector of kind {other:?}; the kinds are local, command, slurm and kubernetes, and \
                 several, which names files of these kinds"
            ));
        }
    };
    Ok(Opened { connector, currency: head.currency })
}

fn settings<T: DeserializeOwned>(rest: Map<String, Value>) -> Result<T, String> {
    serde_json::from_value(Value::Object(rest)).map_err(|error| error.to_string())
}

fn check(offers: &[Offer], currency: Option<&str>) -> Result<(), String> {
    if offers.is_empty() || offers.len() > OFFERS_MAX {
        return Err(format!("it has {} offers; expected 1 to {OFFERS_MAX}", offers.len()));
    }
    // Both become values of labels.
    let is_word = |text: &str| text.len() <= 40 && text.parse::<MachineId>().is_ok();
    if let Some(wrong) = currency.filter(|currency| !is_word(currency)) {
        return Err(format!("currency {wrong:?}: expected a name such as EUR"));
    }
    let mut names = BTreeSet::new();
    for offer in offers {
        let wrong = |reason: String| Err(format!("offer {:?}: {reason}", offer.name));
        if !is_word(&offer.name) {
            return wrong("the name has 1 to 40 letters, digits, - _ . and /".to_owned());
        }
        if !names.insert(&offer.name) {
            return wrong("the name is used twice".to_owned());
        }
        if offer.workers == 0 || offer.max == 0 || offer.quantum_s == 0 {
            return wrong("workers, max and quantum_s are at least 1".to_owned());
        }
        if offer.memory_bytes == Some(0) {
            return wrong("memory_bytes is at least 1".to_owned());
        }
        if offer.max > OFFER_MACHINES_MAX {
            return wrong(format!("max is at most {OFFER_MACHINES_MAX}"));
        }
        if let Some(price) = offer.price_per_hour.filter(|price| !price.is_finite() || *price < 0.0) {
            return wrong(format!("price_per_hour {price}: expected an amount of money, 0 or more"));
        }
        let mut labels = offer.labels.iter().flat_map(|(name, value)| [name, value]);
        if let Some(label) = labels.find(|word| word.parse::<MachineId>().is_err()) {
            return wrong(format!(
                "{label:?} cannot be part of a label: 1 to 63 letters, digits, - _ . and /"
            ));
        }
        for (field, name) in [("program", &offer.program), ("version", &offer.version)] {
            if let Some(name) = name.as_deref().filter(|name| !is_release_name(name)) {
                return wrong(format!(
                    "{field} {name:?}: expected 1 to 60 letters, digits, - _ and ., as `taskwork nodes` shows it"
                ));
            }
        }
        if offer.version.is_some() && offer.program.is_none() {
            return wrong("it has a version without a program: add \"program\"".to_owned());
        }
        if let Some(name) = RESERVED.iter().find(|name| offer.labels.contains_key(**name)) {
            return wrong(format!("the label {name} is set by the controller itself"));
        }
    }
    Ok(())
}

/// Returns whether this is a valid name of a program or a version.
fn is_release_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=60).contains(&name.len()) && name.bytes().all(is_allowed)
}

/// Labels derived from the machine and its offer.
const RESERVED: [&str; 5] = ["machine", "offer", "price", "currency", "spot"];

impl Common {
    pub(crate) fn offer(&self, name: &str) -> Option<&Offer> {
        self.offers.iter().find(|offer| offer.name == name)
    }

    /// Resolves a path of the file.
    pub(crate) fn path(&self, path: &Path) -> PathBuf {
        self.folder.join(path)
    }

    /// Returns the labels of nodes on machines of an offer, in the format of [`LABELS_VARIABLE`].
    pub fn labels(&self, offer: &Offer) -> String {
        let labels = offer.node_labels(self.currency.as_deref());
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        labels.join(",")
    }
}

/// The environment variable with the labels of a node, in the format of `--label`.
pub const LABELS_VARIABLE: &str = "TASKWORK_LABELS";

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        parse(text, "demo", Path::new(".")).unwrap_err()
    }

    fn with(offers: &str) -> String {
        format!(r#"{{"kind": "local", "program": ["true"], "folder": "x", "offers": {offers}}}"#)
    }

    #[test]
    fn invalid_file_is_refused_with_reason() {
        for (text, part) in [
            ("", "in JSON"),
            ("[]", "in JSON"),
            ("{}", "kind"),
            (r#"{"kind": "local"}"#, "offers"),
            (
                r#"{"kind": "cloud", "offers": [{"name": "a", "workers": 1, "max": 1}]}"#,
                "no connector of kind \"cloud\"",
            ),
            (&with("[]"), "0 offers"),
            (&with(r#"[{"name": "a b", "workers": 1, "max": 1}]"#), "offer \"a b\""),
            (&with(r#"[{"name": "a", "workers": 0, "max": 1}]"#), "at least 1"),
            (&with(r#"[{"name": "a", "workers": 1, "max": 1, "memory_bytes": 0}]"#), "memory_bytes"),
            (&with(r#"[{"name": "a", "workers": 1, "max": 1, "price": 3}]"#), "price"),
            (&with(r#"[{"name": "a", "workers": 1, "max": 1, "price_per_hour": -1}]"#), "0 or more"),
            (
                &with(r#"[{"name": "a", "workers": 1, "max": 1}, {"name": "a", "workers": 1, "max": 1}]"#),
                "twice",
            ),
            (&with(r#"[{"name": "a", "workers": 1, "max": 1, "labels": {"zone": "a,b"}}]"#), "a,b"),
            (
                &with(r#"[{"name": "a", "workers": 1, "max": 1, "labels": {"machine": "x"}}]"#),
                "by the controller",
            ),
            (
                &with(r#"[{"name": "a", "workers": 1, "max": 1, "program": "t s"}]"#),
                "program \"t s\": expected",
            ),
            (
                &with(r#"[{"name": "a", "workers": 1, "max": 1, "program": "t", "version": ""}]"#),
                "version \"\": expected",
            ),
            (&with(r#"[{"name": "a", "workers": 1, "max": 1, "version": "1"}]"#), "add \"program\""),
            (&with(r#"[{"name": "a", "workers": 1, "max": 1}], "foldr": "y""#), "foldr"),
        ] {
            let said = refused(text);
            assert!(said.contains(part), "no {part:?} in {said:?} for {text}");
        }
    }

    #[test]
    fn missing_file_is_named() {
        let said = open(Path::new("/no/such/file.json"), "demo").unwrap_err().to_string();
        assert!(said.starts_with("/no/such/file.json: "), "{said}");
    }

    #[test]
    fn labels_contain_price_and_offer() {
        let common = Common {
            cluster: "demo".to_owned(),
            folder: PathBuf::new(),
            offers: serde_json::from_str(
                r#"[{"name": "s", "workers": 1, "max": 1, "price_per_hour": 0.1, "spot": true,
                    "labels": {"zone": "b"}}]"#,
            )
            .unwrap(),
            currency: Some("EUR".to_owned()),
        };
        assert_eq!(common.labels(&common.offers[0]), "offer=s,price=0.1/h,currency=EUR,spot=true,zone=b");
    }
}
