//! The connection of a command to a cluster, and the options that most commands share.

use taskwork::{Client, client::Overview};
use taskwork_cli::{
    Failure,
    command::{ClusterArguments, LogArguments, Patience, print},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Common {
    #[command(flatten)]
    pub(crate) cluster: ClusterArguments,
    #[command(flatten)]
    pub(crate) patience: Patience,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
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

    /// Prints the JSON or the text, as requested.
    pub(crate) fn say(&self, json: impl FnOnce() -> serde_json::Value, text: impl FnOnce() -> String) {
        let text = if self.json { json().to_string() } else { text() };
        print(&format!("{}\n", text.trim_end_matches('\n')));
    }
}
