//! The commands of a cluster on one machine, run here or by ssh.

use std::{convert::Infallible, process::Stdio, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};
use taskwork_cli::Failure;
use tokio::{io::AsyncWriteExt as _, process::Command, time};

/// The name of this machine, which needs no ssh.
const HERE: &str = "localhost";

/// The address if only this machine takes part.
pub(super) const LOOPBACK: &str = "127.0.0.1";

const SCRIPT: &str = include_str!("machine.sh");

/// The maximum time of a command, with the transfer of a program over a slow line.
const COMMAND_MAX: Duration = Duration::from_secs(600);

/// ssh asks for nothing: a question of one machine would delay the others.
const SSH: [&str; 4] = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=10"];

/// A machine, as ssh names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Machine {
    pub(super) name: String,
    /// The address for other machines, if it is not the one that ssh uses.
    pub(super) address: Option<String>,
}

impl FromStr for Machine {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text.split_once('=') {
            Some((name, address)) => Self { name: name.to_owned(), address: Some(address.to_owned()) },
            None => Self { name: text.to_owned(), address: None },
        })
    }
}

impl Machine {
    pub(super) fn here() -> Self {
        Self { name: HERE.to_owned(), address: None }
    }

    pub(super) fn is_here(&self) -> bool {
        self.name == HERE
    }

    /// Refuses names that ssh or a configuration would read as something else.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let is_word = |text: &str| {
            !text.is_empty()
                && !text.starts_with('-')
                && text.chars().all(|c| c.is_ascii_alphanumeric() || "@.:_-%".contains(c))
        };
        if self.address.as_deref().is_some_and(is_loopback) {
            return Err(Failure::usage(format!(
                "{}: other machines do not reach a loopback address",
                self.name
            )));
        }
        if [Some(&self.name), self.address.as_ref()].into_iter().flatten().all(|text| is_word(text)) {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "{:?} is no machine: expected HOST, USER@HOST or HOST=ADDRESS",
            self.name
        )))
    }

    /// Returns the address for the other machines: the given one, or the one that ssh uses.
    pub(super) async fn address(&self) -> Result<String, Failure> {
        if let Some(address) = &self.address {
            return Ok(address.clone());
        }
        if self.is_here() {
            return Err(Failure::usage(
                "give the address of this machine for the others: localhost=ADDRESS".to_owned(),
            ));
        }
        let mut ssh = Command::new("ssh");
        ssh.args(["-G", &self.name]);
        let settings = output_of(self, ssh, b"").await?;
        match settings.lines().find_map(|line| line.strip_prefix("hostname ")) {
            Some(address) if !is_loopback(address) => Ok(address.to_owned()),
            _ => Err(self.failed(&format!("give its address for the other machines: {}=ADDRESS", self.name))),
        }
    }

    /// Runs a verb of the script, and returns its output.
    pub(super) async fn run(&self, cluster: &str, words: &[&str], input: &[u8]) -> Result<String, Failure> {
        let (verb, rest) = words.split_first().expect("a verb");
        let words = [&[SCRIPT, "sh", verb, cluster], rest].concat();
        let mut command = Command::new(if self.is_here() { "sh" } else { "ssh" });
        if self.is_here() {
            command.arg("-c").args(words);
        } else {
            let line: Vec<String> = words.into_iter().map(quoted).collect();
            command.args(SSH).arg(&self.name).arg(format!("sh -c {}", line.join(" ")));
        }
        output_of(self, command, input).await
    }

    /// Writes a file of the cluster.
    pub(super) async fn write(
        &self,
        cluster: &str,
        file: &str,
        mode: &str,
        content: &[u8],
    ) -> Result<(), Failure> {
        let bytes = content.len().to_string();
        self.run(cluster, &["write", file, mode, &bytes], content).await.map(drop)
    }

    pub(super) fn failed(&self, reason: &str) -> Failure {
        Failure::failed(format!("{}: {reason}", self.name))
    }
}

/// Runs a command on behalf of a machine, with an input, and returns its output.
async fn output_of(machine: &Machine, mut command: Command, input: &[u8]) -> Result<String, Failure> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| machine.failed(&format!("ssh cannot run: {error}")))?;
    let mut pipe = child.stdin.take().expect("a pipe");
    let feed = async move {
        // A command that fails reads no more; its message is the reason.
        let _ = pipe.write_all(input).await;
    };
    let both = async { tokio::join!(feed, child.wait_with_output()).1 };
    let ended = time::timeout(COMMAND_MAX, both).await;
    let ended =
        ended.map_err(|_| machine.failed(&format!("no answer within {} s", COMMAND_MAX.as_secs())))?;
    let output = ended.map_err(|error| machine.failed(&error.to_string()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let reason = String::from_utf8_lossy(&output.stderr);
    let reason = reason.trim();
    Err(machine.failed(if reason.is_empty() { "it gives no reason" } else { reason }))
}

/// Returns whether an address leads each machine to itself.
fn is_loopback(address: &str) -> bool {
    [LOOPBACK, "::1", HERE].contains(&address)
}

/// Quotes a word for the shell of another machine.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn quoted_word_is_the_same_in_a_shell() {
        for word in ["", "a b", "it's", "$HOME `id` \"x\"\n\\", "''"] {
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("printf %s {}", quoted(word))]);
            assert_eq!(output_of(&Machine::here(), shell, b"").await.ok().as_deref(), Some(word));
        }
    }

    #[test]
    fn options_and_commands_are_no_machines() {
        let check = |text: &str| text.parse::<Machine>().unwrap().check().is_ok();
        assert!(["h1", "user@h1.example.org", "h1=10.0.0.5", "h1=fd00::1", HERE].map(check) == [true; 5]);
        assert!(["", "-oProxyCommand=x", "h1;id", "h1=", "h1=a b", "h1=$(id)"].map(check) == [false; 6]);
        assert!(["h1=127.0.0.1", "h1=::1", "h1=localhost"].map(check) == [false; 3]);
    }
}
