//! Several providers: the connectors of other files as one, with one list of offers.
//!
//! Each offer belongs to one file, and so does each machine. If a provider does not list its machines, the list is unknown
//! as a whole: machines that are not listed count as gone. Terminations do not wait for each other.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::Deserialize;
use tokio::task::JoinSet;

use super::{Calling, Connector, Key, Machine, MachineId, Offer, Opened, Refusal, file};

/// The maximum number of files.
const FILES_MAX: usize = 16;

/// The settings in the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Settings {
    /// The files of the connectors; relative paths start from the folder of this file.
    of: Vec<PathBuf>,
}

#[derive(Debug)]
pub(super) struct Several {
    offers: Vec<Offer>,
    parts: Vec<Part>,
}

#[derive(Debug, Clone)]
struct Part {
    /// Its file, for messages.
    file: PathBuf,
    connector: Arc<dyn Connector>,
}

impl Several {
    /// Opens the connectors of the files.
    ///
    /// # Errors
    /// If a file is invalid, is of this kind itself, or contradicts another one.
    pub(super) fn open(Settings { of }: Settings, cluster: &str, folder: &Path) -> Result<Opened, String> {
        if !(1..=FILES_MAX).contains(&of.len()) {
            return Err(format!("\"of\" names {} files: expected 1 to {FILES_MAX}", of.len()));
        }
        let (mut parts, mut offers) = (Vec::<Part>::new(), Vec::<Offer>::new());
        let mut owners = BTreeMap::<String, PathBuf>::new();
        let mut priced: Option<(PathBuf, Option<String>)> = None;
        for path in of {
            let path = folder.join(path);
            let Opened { connector, currency } =
                file::open_part(&path, cluster).map_err(|error| error.to_string())?;
            for offer in connector.offers() {
                if let Some(other) = owners.insert(offer.name.clone(), path.clone()) {
                    return Err(format!(
                        "offer {:?} is in both {} and {}: rename it in one of them",
                        offer.name,
                        other.display(),
                        path.display()
                    ));
                }
                offers.push(offer.clone());
            }
            if connector.offers().iter().any(|offer| offer.price_per_hour.is_some()) {
                match &priced {
                    Some((other, theirs)) if *theirs != currency => {
                        return Err(format!(
                            "prices are in {} in {}, and in {} in {}: convert them to one currency",
                            theirs.as_deref().unwrap_or("no currency"),
                            other.display(),
                            currency.as_deref().unwrap_or("no currency"),
                            path.display()
                        ));
                    }
                    Some(_) => {}
                    None => priced = Some((path.clone(), currency)),
                }
            }
            parts.push(Part { file: path, connector: connector.into() });
        }
        let currency = priced.and_then(|(_, currency)| currency);
        Ok(Opened { connector: Box::new(Self { offers, parts }), currency })
    }

    /// Returns the machines of all parts.
    async fn all(&self, may_act: bool) -> Result<Vec<Machine>, Refusal> {
        let mut lists = JoinSet::new();
        for part in &self.parts {
            let part = part.clone();
            lists.spawn(async move {
                let listed = if may_act { part.connector.list() } else { part.connector.look() };
                (part.file, listed.await)
            });
        }
        let (mut machines, mut owners) = (Vec::new(), BTreeMap::<MachineId, PathBuf>::new());
        while let Some(listed) = lists.join_next().await {
            let (file, listed) = listed
                .map_err(|error| Refusal::unknown(format!("a list of machines was not read: {error}")))?;
            for machine in listed.map_err(|refusal| within(&file, &refusal))? {
                if let Some(other) = owners.insert(machine.id.clone(), file.clone()) {
                    return Err(Refusal::wrong(format!(
                        "machine {} is listed by both {} and {}: each connector needs machines of its own, such as \
                         another folder or account",
                        machine.id,
                        other.display(),
                        file.display()
                    )));
                }
                machines.push(machine);
            }
        }
        Ok(machines)
    }
}

/// Adds the file to the message of a refusal.
fn within(file: &Path, refusal: &Refusal) -> Refusal {
    Refusal { why: refusal.why, message: format!("{}: {}", file.display(), refusal.message) }
}

/// Terminates those of the machines that belong to a part.
async fn terminate(part: Part, machines: Arc<BTreeSet<MachineId>>) -> Result<(), Refusal> {
    let all = part.connector.look().await.map_err(|refusal| within(&part.file, &refusal))?;
    let own: Vec<MachineId> =
        all.into_iter().map(|machine| machine.id).filter(|id| machines.contains(id)).collect();
    if own.is_empty() {
        return Ok(());
    }
    part.connector.terminate(&own).await.map_err(|refusal| within(&part.file, &refusal))
}

impl Connector for Several {
    fn offers(&self) -> &[Offer] {
        &self.offers
    }

    fn request_max(&self) -> u32 {
        self.parts.iter().map(|part| part.connector.request_max()).min().unwrap_or(u32::MAX)
    }

    fn create<'a>(&'a self, offer: &'a str, count: u32, key: &'a Key) -> Calling<'a, Vec<MachineId>> {
        Box::pin(async move {
            let has = |part: &&Part| part.connector.offers().iter().any(|own| own.name == offer);
            let Some(part) = self.parts.iter().find(has) else {
                return Err(Refusal::wrong(format!("no connector has the offer {offer:?}")));
            };
            let created = part.connector.create(offer, count, key).await;
            created.map_err(|refusal| within(&part.file, &refusal))
        })
    }

    fn list(&self) -> Calling<'_, Vec<Machine>> {
        Box::pin(self.all(true))
    }

    fn look(&self) -> Calling<'_, Vec<Machine>> {
        Box::pin(self.all(false))
    }

    fn terminate<'a>(&'a self, machines: &'a [MachineId]) -> Calling<'a, ()> {
        Box::pin(async move {
            let machines: Arc<BTreeSet<MachineId>> = Arc::new(machines.iter().cloned().collect());
            let mut ends = JoinSet::new();
            for part in &self.parts {
                ends.spawn(terminate(part.clone(), Arc::clone(&machines)));
            }
            let mut outcome = Ok(());
            while let Some(ended) = ends.join_next().await {
                let ended = ended
                    .unwrap_or_else(|error| Err(Refusal::unknown(format!("a termination failed: {error}"))));
                outcome = outcome.and(ended);
            }
            outcome
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::{Value, json};
    use tempfile::TempDir;

    use super::*;
    use crate::connector::{Why, scripts};

    /// A connector of commands that record their calls, and list the machines in a file.
    fn provider(folder: &TempDir, name: &str, currency: &str, offers: &Value) {
        let path = |file: &str| folder.path().join(format!("{name}.{file}"));
        let script = |command: &str, text: String| {
            scripts::write(&path(command), &text);
            vec![path(command).to_str().unwrap().to_owned()]
        };
        let log = path("log");
        let said = |command: &str| format!("echo {command} $@ >> {}", log.display());
        let content = json!({
            "kind": "command",
            "currency": currency,
            "create": script("create", said("create")),
            "list": script("list", format!("cat {}", path("machines").display())),
            "terminate": script("terminate", said("terminate")),
            "offers": offers,
        });
        fs::write(path("machines"), "").unwrap();
        fs::write(path("json"), content.to_string()).unwrap();
    }

    fn lists(folder: &TempDir, name: &str, offer: &str, ids: &[&str]) {
        let machine = |id: &&str| json!({"id": id, "offer": offer, "state": "running"});
        let lines: Vec<String> = ids.iter().map(|id| machine(id).to_string() + "\n").collect();
        fs::write(folder.path().join(format!("{name}.machines")), lines.concat()).unwrap();
    }

    fn opened(folder: &TempDir, of: &[&str]) -> Result<Opened, String> {
        let text = json!({"kind": "several", "of": of}).to_string();
        file::parse(&text, "demo", folder.path())
    }

    fn two() -> (TempDir, Box<dyn Connector>) {
        let folder = TempDir::new().unwrap();
        let offer = |name: &str| json!([{"name": name, "workers": 1, "max": 4, "price_per_hour": 0.1}]);
        provider(&folder, "one", "EUR", &offer("private"));
        provider(&folder, "two", "EUR", &offer("public"));
        let Opened { connector, currency } = opened(&folder, &["one.json", "two.json"]).unwrap();
        assert_eq!(currency.as_deref(), Some("EUR"));
        (folder, connector)
    }

    fn log(folder: &TempDir, name: &str) -> String {
        fs::read_to_string(folder.path().join(format!("{name}.log"))).unwrap_or_default()
    }

    #[tokio::test]
    async fn two_providers_are_one_list() {
        let (folder, connector) = two();
        let names: Vec<&str> = connector.offers().iter().map(|offer| &*offer.name).collect();
        assert_eq!(names, ["private", "public"]);
        lists(&folder, "one", "private", &["a"]);
        lists(&folder, "two", "public", &["b", "c"]);
        for listed in [connector.list().await, connector.look().await] {
            let mut ids: Vec<String> =
                listed.unwrap().into_iter().map(|machine| machine.id.as_str().to_owned()).collect();
            ids.sort();
            assert_eq!(ids, ["a", "b", "c"]);
        }
        connector.create("public", 1, &"k-1".parse().unwrap()).await.unwrap();
        assert!(log(&folder, "one").is_empty() && log(&folder, "two").contains("create public 1 k-1"));
        connector.terminate(&["a".parse().unwrap(), "gone".parse().unwrap()]).await.unwrap();
        assert!(log(&folder, "one").contains("terminate a") && !log(&folder, "two").contains("terminate"));
        let refusal = connector.create("other", 1, &"k-2".parse().unwrap()).await.unwrap_err();
        assert_eq!(refusal.why, Why::Wrong);
    }

    #[tokio::test]
    async fn list_is_unknown_if_a_provider_does_not_answer() {
        let (folder, connector) = two();
        lists(&folder, "one", "private", &["a"]);
        lists(&folder, "two", "public", &["a"]);
        let refusal = connector.list().await.unwrap_err();
        assert!(refusal.message.contains("machine a is listed by both"), "{refusal}");
        fs::remove_file(folder.path().join("two.machines")).unwrap();
        let refusal = connector.list().await.unwrap_err();
        assert!(refusal.message.contains("two.json: "), "{refusal}");
        // Those of the other provider are terminated nevertheless.
        connector.terminate(&["a".parse().unwrap()]).await.unwrap_err();
        assert!(log(&folder, "one").contains("terminate"));
    }

    #[test]
    fn contradicting_files_are_refused() {
        let folder = TempDir::new().unwrap();
        let offer = |name: &str| json!([{"name": name, "workers": 1, "max": 4, "price_per_hour": 0.1}]);
        provider(&folder, "one", "EUR", &offer("a"));
        provider(&folder, "same", "EUR", &offer("a"));
        provider(&folder, "dollars", "USD", &offer("b"));
        fs::write(folder.path().join("nested.json"), r#"{"kind": "several", "of": ["one.json"]}"#).unwrap();
        for (of, part) in [
            (&["one.json", "same.json"][..], "offer \"a\" is in both"),
            (&["one.json", "dollars.json"], "in EUR in"),
            (&["one.json", "missing.json"], "missing.json"),
            (&["nested.json"], "nested.json: a connector of kind \"several\""),
            (&[], "0 files"),
        ] {
            let said = opened(&folder, of).unwrap_err();
            assert!(said.contains(part), "no {part:?} in {said:?}");
        }
    }
}
