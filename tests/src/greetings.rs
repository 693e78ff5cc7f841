//! A small framework: companions that greet each other, and describe their greetings for displays. Each one describes
//! its part of the job.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use taskwork::{
    NodeId, Progress,
    companion::{CompanionContext, CompanionEvent, JobStatus, StatusProvider},
    display::{Cell, Column, Document, Field, Format, JobDisplay, Offer, Picture, Row, Table, Unit},
};
use taskwork_cli::{LogColumn, ProgressDisplay};

/// The companion of a node.
#[derive(Debug, Default)]
pub struct Greetings {
    /// The node, and the number of messages heard from each other one.
    heard: Mutex<(String, BTreeMap<String, u64>)>,
}

impl Greetings {
    fn lock(&self) -> MutexGuard<'_, (String, BTreeMap<String, u64>)> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, from: NodeId) {
        *self.lock().1.entry(from.to_string()).or_default() += 1;
    }
}

impl StatusProvider for Greetings {
    fn status(&self) -> Option<JobStatus> {
        let (node, heard) = &*self.lock();
        let columns = vec![
            Column::new("from", "from", Unit::Text),
            Column::new("to", "to", Unit::Text),
            Column::new("messages", "messages", Unit::Count),
        ];
        let (mut table, mut graph) = (Table::new("greetings", "Greetings", columns), String::new());
        for (from, messages) in heard {
            table = table.row(
                Row::new().with("from", from.as_str()).with("to", node.as_str()).with("messages", *messages),
            );
            let _ = write!(graph, "<text>{from}</text>");
        }
        let display = JobDisplay::new()
            .value(Field::new("messages", "messages", Unit::Count, heard.values().sum::<u64>()))
            .table(table)
            .picture(Picture::svg("greetings.svg", "who greets", format!("<svg>{graph}</svg>")))
            .document(Offer::new("greeting", "the messages from a node").argument("NODE"));
        Some(JobStatus { rank: 1, display })
    }

    fn document(&self, name: &str, argument: Option<&str>) -> Option<Result<Document, String>> {
        let (node, heard) = &*self.lock();
        let Some(from) = argument.filter(|_| name == "greeting") else {
            return Some(Err("--about takes the name of a node".to_owned()));
        };
        // Otherwise the other node knows it.
        let messages = heard.get(from)?;
        Some(Ok(Document::new(Format::Text, format!("{node} has heard {messages} messages from {from}"))))
    }
}

/// Greets every other node, and logs its events.
pub(crate) async fn run(mut cx: CompanionContext, greetings: Arc<Greetings>) -> Result<(), String> {
    greetings.lock().0 = cx.node().to_string();
    let provider: Weak<Greetings> = Arc::downgrade(&greetings);
    cx.set_status_provider(provider);
    while let Some(event) = cx.next().await {
        match event {
            CompanionEvent::Joined { node } => {
                // The node may not be there yet; it sends a greeting too.
                let _ = cx.messenger().send(node, b"greeting".to_vec());
            }
            CompanionEvent::Message { from, bytes } => {
                tracing::info!(%from, text = %String::from_utf8_lossy(&bytes), "a companion is heard");
                greetings.hear(from);
                if bytes == b"greeting" {
                    let _ = cx.messenger().send(from, b"answer".to_vec());
                }
            }
            CompanionEvent::Left { node } => tracing::info!(%node, "a companion is gone"),
            CompanionEvent::Rescue(_) => tracing::info!("a companion is asked to rescue what it has"),
            _ => {}
        }
    }
    tracing::info!("a companion ends");
    Ok(())
}

/// Returns the progress display of a job with these companions.
pub(crate) fn progress_display() -> ProgressDisplay {
    let columns = vec![LogColumn::new("messages", Unit::Count, 8)];
    ProgressDisplay::default().unit("states").columns(columns, |progress: &Progress| {
        let messages = progress.display.as_ref().and_then(|display| display.count_of("messages"));
        vec![messages.map(Cell::from)]
    })
}
