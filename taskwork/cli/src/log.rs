//! The destination, format and level of the log.

use std::{
    ffi::OsStr,
    io::{self, IsTerminal as _},
};

use clap::{Args, ValueEnum};
use tracing_subscriber::{
    EnvFilter,
    filter::{Directive, LevelFilter},
};

/// The options of the log.
#[derive(Debug, Clone, Args)]
#[group(skip)]
pub struct LogArguments {
    /// The log filter for standard error: error, warn, info, debug or trace, for all or for some modules
    /// (`warn,taskwork=debug`). The default is to log the messages for users.
    #[arg(long, value_name = "FILTER", env = "TASKWORK_LOG", value_parser = filter)]
    log: Option<String>,
    /// The format of the log.
    #[arg(long, value_enum, default_value = "text")]
    log_format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For human readers.
    Text,
    /// One JSON object per line.
    Json,
}

/// The default level of a command's log.
#[derive(Debug, Clone, Copy)]
pub enum Level {
    /// Errors and warnings.
    Warn,
    /// Also normal events.
    Info,
}

impl LogArguments {
    /// Starts logging.
    #[expect(clippy::missing_panics_doc, reason = "the directives in this function are valid")]
    pub fn start(&self, level: Level) {
        let level = match level {
            Level::Warn => LevelFilter::WARN,
            Level::Info => LevelFilter::INFO,
        };
        let builder = EnvFilter::builder().with_default_directive(level.into());
        let given = self.log.as_deref().filter(|given| !given.is_empty());
        // No directive is skipped: the filter was checked when it was parsed.
        let mut filter = builder.parse_lossy(given.unwrap_or_default());
        if given.is_none() {
            // Connections are reported by this project's own messages.
            filter = filter.add_directive("zookeeper_client=error".parse().expect("a directive"));
        } else {
            // Below this level the client logs the session's password.
            filter = filter.add_directive("zookeeper_client=info".parse().expect("a directive"));
        }
        let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
        // A logger installed by the program is kept.
        let _ = match self.log_format {
            Format::Text => builder.with_ansi(has_colours()).with_target(false).try_init(),
            Format::Json => builder.json().with_ansi(false).try_init(),
        };
    }
}

/// Returns whether to use colours on standard error: if it is a terminal, and `NO_COLOR` is unset or empty
/// (<https://no-color.org>). Clap and the progress line check that themselves.
fn has_colours() -> bool {
    wants_colours(std::env::var_os("NO_COLOR").as_deref(), io::stderr().is_terminal())
}

fn wants_colours(no_color: Option<&OsStr>, is_terminal: bool) -> bool {
    is_terminal && no_color.is_none_or(OsStr::is_empty)
}

/// Checks a complete filter: an ignored directive would suppress messages that the user expects.
pub(super) fn filter(text: &str) -> Result<String, String> {
    let directives = text.split(',').map(str::trim).filter(|directive| !directive.is_empty());
    let directives: Vec<&str> = directives.collect();
    for directive in &directives {
        check(directive).map_err(|what| {
            format!(
                "{directive:?} {what}. --log (or TASKWORK_LOG) takes a level (off, error, warn, info, debug \
                 or trace), or several with the modules they are for, as in warn,taskwork=debug"
            )
        })?;
    }
    Ok(directives.join(","))
}

fn check(directive: &str) -> Result<(), &'static str> {
    directive.parse::<Directive>().map_err(|_| "is no directive")?;
    // A word that is no level would be taken for a module, so a misspelt level would suppress everything.
    let is_word = !directive.contains(['=', '[']);
    if is_word && directive.parse::<LevelFilter>().is_err() {
        return Err("is no level");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_with_invalid_directive_is_refused() {
        for bad in
            ["nonsense==", "taskwork=loud", "=debug", "warn,taskwork=debgu", "debgu", "taskwork", "a b"]
        {
            let error = filter(bad).unwrap_err();
            for part in ["--log", "TASKWORK_LOG", "warn,taskwork=debug"] {
                assert!(error.contains(part), "no {part:?} in {error:?}");
            }
            let wrong = bad.rsplit(',').next().unwrap();
            assert!(
                error.contains(&format!("{wrong:?}")),
                "{error:?} does not say what is wrong with {bad:?}"
            );
        }
    }

    #[test]
    fn colours_need_terminal_and_no_no_color() {
        let no = |text: &'static str| Some(OsStr::new(text));
        assert!(wants_colours(None, true) && wants_colours(no(""), true));
        assert!(!wants_colours(no("1"), true) && !wants_colours(no("0"), true));
        assert!(!wants_colours(None, false));
    }

    #[test]
    fn accepted_filter_can_be_parsed() {
        for (good, taken) in [
            ("", ""),
            ("DEBUG", "DEBUG"),
            ("off", "off"),
            ("warn, taskwork=debug,", "warn,taskwork=debug"),
            ("taskwork::shell=trace,zk=off", "taskwork::shell=trace,zk=off"),
            ("[job{job=j-0000000003}]=debug", "[job{job=j-0000000003}]=debug"),
        ] {
            assert_eq!(filter(good).as_deref(), Ok(taken));
            assert!(EnvFilter::builder().parse(taken).is_ok(), "{taken}");
        }
    }
}
