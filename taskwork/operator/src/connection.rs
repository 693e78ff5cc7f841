//! The connection of a command to a cluster, and the options that most commands share.

use std::{
    io::{self, IsTerminal as _},
    time::Duration,
};

use taskwork::{Client, client::Overview};
use taskwork_cli::{
    Failure,
    command::{ClusterArguments, LogArguments, Patience, print},
};
use tokio::time;

use crate::json::versioned;

/// The interval at which a watched list is read.
const WATCH_EVERY: Duration = Duration::from_secs(2);

/// Clears a terminal.
const CLEAR: &str = "\u{1b}[2J\u{1b}[H";

/// The option of lists.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Watch {
    /// Print the list again whenever it has changed, until Ctrl-C. With --json, each time as one line.
    #[arg(long, short)]
    pub(crate) watch: bool,
}

/// The options of all commands, under their own headings. Flatten them last, since the headings also apply to later options.
#[derive(Debug, clap::Args)]
pub(crate) struct Common {
    /// Print JSON, as `taskwork schema` describes it.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten, next_help_heading = "Connection")]
    pub(crate) cluster: ClusterArguments,
    #[command(flatten)]
    pub(crate) patience: Patience,
    #[command(flatten, next_help_heading = "Log")]
    pub(crate) log: LogArguments,
}

/// The client of a command, and the format of its output.
pub(crate) struct Connection {
    pub(crate) client: Client,
    pub(crate) json: bool,
}

impl Connection {
    pub(crate) async fn overview(&self) -> Result<Overview, Failure> {
        Ok(self.client.overview().await?)
    }

    /// Prints a list that `read` returns as JSON and as text; if it is watched, again after each change, without end.
    pub(crate) async fn list(
        &self,
        watch: bool,
        read: impl AsyncFn() -> Result<(serde_json::Value, String), Failure>,
    ) -> Result<(), Failure> {
        let mut shown: Option<(serde_json::Value, String)> = None;
        loop {
            let list = read().await?;
            let is_same = shown
                .as_ref()
                .is_some_and(|(json, text)| if self.json { *json == list.0 } else { *text == list.1 });
            if !is_same {
                if shown.is_some() && !self.json {
                    print(if io::stdout().is_terminal() { CLEAR } else { "\n" });
                }
                self.say(|| list.0.clone(), || list.1.clone());
                shown = Some(list);
            }
            if !watch {
                return Ok(());
            }
            time::sleep(WATCH_EVERY).await;
        }
    }

    /// Prints the JSON of a program or a framework, or the text, as requested.
    pub(crate) fn say_as_is(&self, json: &serde_json::Value, text: impl FnOnce() -> String) {
        let text = if self.json { json.to_string() } else { text() };
        print(&format!("{}\n", text.trim_end_matches('\n')));
    }

    /// Prints the JSON, with its version, or the text, as requested.
    pub(crate) fn say(&self, json: impl FnOnce() -> serde_json::Value, text: impl FnOnce() -> String) {
        let text = if self.json { versioned(json()).to_string() } else { text() };
        print(&format!("{}\n", text.trim_end_matches('\n')));
    }
}
