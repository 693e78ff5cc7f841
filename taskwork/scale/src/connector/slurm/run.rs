//! Runs a command of Slurm with limits on its time and output.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    io,
    path::Path,
    process::Stdio,
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    process::Command,
    time,
};

use crate::connector::Refusal;

/// The maximum output of a command, in bytes: a line for each job that a connector can list.
const OUTPUT_BYTES_MAX: u64 = 8 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) success: bool,
    pub(super) output: String,
    pub(super) error: String,
}

/// Prefixes of environment variables that set options of the commands and would hide jobs.
const HIDING: [&str; 9] = [
    "SQUEUE_",
    "SCANCEL_",
    "SLURM_CLUSTERS",
    "SBATCH_ARRAY_INX",
    "SBATCH_CLUSTERS",
    "SBATCH_JOB_NAME",
    "SBATCH_TEST_ONLY",
    "SBATCH_WAIT",
    "SBATCH_WRAP",
];

/// Returns a command without environment variables that would hide jobs.
pub(super) fn command(
    program: &Path,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Command {
    let hides = |name: &OsStr| {
        let name = name.to_string_lossy();
        // Waiting for nodes is different from waiting for the end of the job.
        name != "SBATCH_WAIT_ALL_NODES" && HIDING.iter().any(|start| name.starts_with(start))
    };
    let mut command = Command::new(program);
    command.env_clear().envs(environment.into_iter().filter(|(name, _)| !hides(name)));
    command
}

/// Runs a command. It is killed if it takes too long.
pub(super) async fn run(
    program: &Path,
    words: &[String],
    environment: &BTreeMap<String, String>,
    timeout: Duration,
) -> Result<Said, Refusal> {
    let shown = program.display();
    let mut child = command(program, std::env::vars_os())
        .args(words)
        .envs(environment)
        // Times in seconds since 1970 instead of local times.
        .env("SLURM_TIME_FORMAT", "%s")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| {
            let hint = if error.kind() == io::ErrorKind::NotFound {
                ": does this machine have Slurm's commands? If they are not in PATH, set commands to their folder"
            } else {
                ""
            };
            Refusal::wrong(format!("{shown} cannot be started: {error}{hint}"))
        })?;
    let (output, error) = (child.stdout.take(), child.stderr.take());
    let exchange = async {
        let (output, error) = tokio::try_join!(bounded(output), bounded(error))?;
        Ok::<_, io::Error>((child.wait().await?, output, error))
    };
    match time::timeout(timeout, exchange).await {
        Ok(Ok((status, output, error))) => Ok(Said { success: status.success(), output, error }),
        Ok(Err(error)) => Err(Refusal::unknown(format!("{shown}: {error}"))),
        Err(_) => Err(Refusal::unknown(format!(
            "{shown} did not exit within {} s: is Slurm's controller (slurmctld) reachable? Try scontrol ping",
            timeout.as_secs()
        ))),
    }
}

/// Reads the output of a command; too long an output is an error.
async fn bounded(stream: Option<impl AsyncRead + Unpin>) -> io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        stream.take(OUTPUT_BYTES_MAX + 1).read_to_end(&mut bytes).await?;
    }
    if bytes.len() as u64 > OUTPUT_BYTES_MAX {
        return Err(io::Error::other(format!("it printed more than {OUTPUT_BYTES_MAX} bytes")));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
