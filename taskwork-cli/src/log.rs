//! Where the log goes and how much of it there is.

use std::io::{self, IsTerminal as _};

use clap::{Args, ValueEnum};
use tracing_subscriber::{EnvFilter, filter::LevelFilter};

/// How the log looks.
#[derive(Debug, Clone, Args)]
#[group(skip)]
pub(crate) struct LogArguments {
    /// How much is logged, to standard error: error, warn, info, debug or trace, for all or for some modules
    /// (`warn,taskwork=debug`). By default what a person wants to know.
    #[arg(long, value_name = "FILTER", env = "TASKWORK_LOG")]
    log: Option<String>,
    /// How a line of the log looks.
    #[arg(long, value_enum, default_value = "text")]
    log_format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// What a command logs unless it is told otherwise.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Level {
    Warn,
    Info,
}

impl LogArguments {
    /// Begins to log.
    pub(crate) fn start(&self, level: Level) {
        let level = match level {
            Level::Warn => LevelFilter::WARN,
            Level::Info => LevelFilter::INFO,
        };
        let builder = EnvFilter::builder().with_default_directive(level.into());
        let mut filter = builder.parse_lossy(self.log.as_deref().unwrap_or_default());
        if self.log.is_none() {
            // Theirs is about connections, ours about nodes and jobs.
            filter = filter.add_directive("zookeeper_client=error".parse().expect("a directive"));
        } else {
            // Below this level the client shows the password of the session.
            filter = filter.add_directive("zookeeper_client=info".parse().expect("a directive"));
        }
        let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
        // A program that has set up a log of its own keeps it.
        let _ = match self.log_format {
            Format::Text => builder.with_ansi(io::stderr().is_terminal()).with_target(false).try_init(),
            Format::Json => builder.json().with_ansi(false).try_init(),
        };
    }
}
