//! Runs a program that may hang, print without end, or leave child processes behind.

use std::{path::PathBuf, process::Stdio, time::Duration};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    process::{Child, Command},
    time,
};

use crate::connector::Refusal;

/// The maximum output of a program, in bytes.
const OUTPUT_BYTES_MAX: usize = 4 << 20;
/// The maximum length of the end of its standard error that is shown, in bytes.
const SAID_BYTES_MAX: usize = 600;

/// The exit code if no more machines are available, `EX_TEMPFAIL` of sysexits(3).
const EXHAUSTED: i32 = 75;
/// The exit codes of a configuration error: `EX_CONFIG` of sysexits(3), not executable, not found.
const WRONG: [i32; 3] = [78, 126, 127];

/// A program with its first arguments.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) path: PathBuf,
    pub(super) arguments: Vec<String>,
    pub(super) limit: Duration,
}

/// A process group. It is killed if this is dropped before the process was waited for.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // It may have exited just now.
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}

impl Program {
    /// Runs the program. Returns its output if it succeeds.
    pub(super) async fn run(
        &self,
        arguments: &[String],
        environment: &[(&str, &str)],
    ) -> Result<String, Refusal> {
        let path = self.path.display();
        let started = Command::new(&self.path)
            .args(&self.arguments)
            .args(arguments)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn();
        let mut child = started
            .map_err(|error| Refusal::wrong(format!("{path} cannot be run: {error}. Is it executable?")))?;
        let id = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        // Child processes would continue otherwise.
        let mut group = Group(id);
        let ended = time::timeout(self.limit, listen(&mut child)).await;
        let (out, err, code) = match ended {
            Ok(Ok(ended)) => ended,
            Ok(Err(error)) => {
                return Err(Refusal::unknown(format!("the output of {path} cannot be read: {error}")));
            }
            Err(_) => {
                let seconds = self.limit.as_secs();
                return Err(Refusal::unknown(format!(
                    "{path} did not exit within {seconds} s, or a child process still holds its output; all of \
                     them were killed"
                )));
            }
        };
        if out.len() > OUTPUT_BYTES_MAX {
            return Err(Refusal::unknown(format!(
                "{path} printed more than {OUTPUT_BYTES_MAX} bytes; it was killed"
            )));
        }
        group.0 = None;
        let said = String::from_utf8_lossy(&err);
        let said = said.trim();
        let said = if said.is_empty() { "nothing on standard error" } else { said };
        match code.and_then(|status| status.code()) {
            Some(0) => String::from_utf8(out)
                .map_err(|_| Refusal::unknown(format!("{path} printed something that is not UTF-8"))),
            Some(EXHAUSTED) => {
                Err(Refusal::exhausted(format!("{path} has no more machines at present: {said}")))
            }
            Some(code) if WRONG.contains(&code) => {
                Err(Refusal::wrong(format!("{path} ended with exit code {code}: {said}")))
            }
            Some(code) => Err(Refusal::unknown(format!("{path} ended with exit code {code}: {said}"))),
            None => Err(Refusal::unknown(format!("{path} was ended by a signal: {said}"))),
        }
    }
}

/// The output of a process, the end of its standard error, and its exit status: `None` if it is still running because
/// it printed too much.
type Ended = (Vec<u8>, Vec<u8>, Option<std::process::ExitStatus>);

async fn listen(child: &mut Child) -> std::io::Result<Ended> {
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let read = async {
        let mut all = Vec::new();
        if let Some(out) = out {
            out.take(OUTPUT_BYTES_MAX as u64 + 1).read_to_end(&mut all).await?;
        }
        Ok::<_, std::io::Error>(all)
    };
    let said = async {
        match err {
            Some(err) => tail(err).await,
            None => Ok(Vec::new()),
        }
    };
    // Both are read at once, since a full pipe would block the program, until one of them is too long.
    tokio::pin!(said);
    tokio::pin!(read);
    let mut all = None;
    let mut last = None;
    while all.is_none() || last.is_none() {
        tokio::select! {
            read = &mut read, if all.is_none() => {
                let read = read?;
                if read.len() > OUTPUT_BYTES_MAX {
                    return Ok((read, Vec::new(), None));
                }
                all = Some(read);
            }
            said = &mut said, if last.is_none() => last = Some(said?),
        }
    }
    let status = child.wait().await?;
    Ok((all.unwrap_or_default(), last.unwrap_or_default(), Some(status)))
}

/// Reads to the end, and keeps the last part.
async fn tail(mut from: impl AsyncRead + Unpin) -> std::io::Result<Vec<u8>> {
    let (mut kept, mut buffer) = (Vec::new(), vec![0; 8192]);
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return Ok(kept);
        }
        kept.extend_from_slice(&buffer[..read]);
        let surplus = kept.len().saturating_sub(SAID_BYTES_MAX);
        kept.drain(..surplus);
    }
}
