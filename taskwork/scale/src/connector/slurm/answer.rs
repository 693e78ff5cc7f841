//! The parser of the output of Slurm's commands. Pure, since any output may be unexpected.

use crate::connector::{Key, MACHINES_MAX, Machine, MachineId, MachineState, Refusal};

/// The format of `squeue`: id, state, time of submission, reason, and the comment, which may contain anything.
pub(super) const FORMAT: &str = "%i|%T|%V|%r|%k";

/// The prefix of the comment of a connector's job.
const MARK: &str = "taskwork";

/// The maximum length of an error message, in characters.
const MESSAGE_CHARS_MAX: usize = 400;

/// Messages of Slurm if no more jobs are accepted now.
const EXHAUSTED: [&str; 6] = [
    "submit limit",
    "MaxSubmitJob",
    "temporarily unable to accept job",
    "Resource temporarily unavailable",
    "MaxJobCount",
    "Job limit",
];

/// Messages of Slurm if it is unknown whether a request was received.
const UNKNOWN: [&str; 7] = [
    "Unable to contact slurm controller",
    "Socket timed out",
    "Zero Bytes were transmitted",
    "Connection refused",
    "Transport endpoint",
    "in standby mode",
    "I/O error",
];

/// Returns the comment of a job of a request.
pub(super) fn comment(key: &Key, offer: &str) -> String {
    format!("{MARK}/{key}/{offer}")
}

/// Parses the output of `sbatch --parsable`: the number of the job, with the cluster after a `;` if there are
/// several.
pub(super) fn submitted(output: &str, count: u32) -> Result<Vec<MachineId>, Refusal> {
    // Local scripts may print something before it.
    let line = output.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    let job = line.split(';').next().unwrap_or_default();
    let odd = || {
        Refusal::unknown(format!(
            "sbatch --parsable printed {:?}; expected the number of the job",
            short(output)
        ))
    };
    if job.is_empty() || !job.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(odd());
    }
    (1..=count).map(|task| format!("{job}_{task}").parse().map_err(|_| odd())).collect()
}

/// Parses the output of `squeue`. Jobs of the same name that no connector has submitted are skipped.
pub(super) fn machines(output: &str) -> Result<Vec<Machine>, Refusal> {
    let mut machines = Vec::new();
    for line in output.lines().filter(|line| !line.trim().is_empty()) {
        let odd = || Refusal::unknown(format!("squeue printed {:?}, which cannot be parsed", short(line)));
        let mut columns = line.splitn(5, '|').map(str::trim);
        let [id, state, submitted, reason, comment] = std::array::from_fn(|_| columns.next());
        let comment = comment.ok_or_else(odd)?;
        let Some((key, offer)) = request(comment) else { continue };
        let state = of_job(state.unwrap_or_default(), reason.unwrap_or_default());
        if state.is_over() && !id.is_some_and(is_array_task) {
            // The rest of an array with tasks that were cancelled while they were queued: only its number.
            continue;
        }
        let id = id.filter(|id| is_array_task(id)).and_then(|id| id.parse().ok()).ok_or_else(odd)?;
        let seconds = submitted.and_then(|at| at.parse::<u64>().ok());
        machines.push(Machine {
            id,
            offer,
            state,
            key: Some(key),
            created_ms: seconds.and_then(|at| at.checked_mul(1000)),
        });
        if machines.len() > MACHINES_MAX {
            return Err(Refusal::unknown(format!("squeue lists more than {MACHINES_MAX} jobs of this name")));
        }
    }
    Ok(machines)
}

/// Returns whether the output of `squeue` contains a job of a request, in any state.
pub(super) fn has_request(output: &str, key: &Key) -> bool {
    let comments = output.lines().filter_map(|line| line.splitn(5, '|').nth(4));
    comments.filter_map(|comment| request(comment.trim())).any(|(its, _)| its == *key)
}

/// Returns the key and the offer in the comment of a connector's job.
fn request(comment: &str) -> Option<(Key, String)> {
    let (key, offer) = comment.strip_prefix(MARK)?.strip_prefix('/')?.split_once('/')?;
    Some((key.parse().ok()?, offer.to_owned()))
}

/// Returns whether an id names a task of an array: connectors submit no other jobs.
pub(super) fn is_array_task(id: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    id.split_once('_').is_some_and(|(job, task)| is_number(job) && is_number(task))
}

/// Returns the state of the machine for a state of a job.
fn of_job(state: &str, reason: &str) -> MachineState {
    match state {
        "PENDING" | "CONFIGURING" | "REQUEUED" | "REQUEUE_FED" | "REQUEUE_HOLD" | "RESV_DEL_HOLD"
        | "SPECIAL_EXIT" => MachineState::Requested,
        "COMPLETING" | "STAGE_OUT" => MachineState::Ending,
        // Preemption and timeouts are no failures.
        "COMPLETED" | "CANCELLED" | "PREEMPTED" | "TIMEOUT" | "DEADLINE" | "REVOKED" => MachineState::Gone,
        "FAILED" | "OUT_OF_MEMORY" | "NODE_FAIL" | "BOOT_FAIL" => {
            MachineState::Failed(format!("Slurm reports {state}, {}", short(reason)))
        }
        // Running, suspended, and states of later versions: the job exists, and may work.
        _ => MachineState::Running,
    }
}

/// Interprets the output of `scancel`: a job that is over or has just started is no error.
pub(super) fn cancelled(success: bool, error: &str) -> Result<(), Refusal> {
    const HARMLESS: [&str; 5] = [
        "Invalid job id",
        "already completing or completed",
        "not pending/running",
        "Job is no longer running",
        "Job/step already",
    ];
    let is_bad =
        |line: &&str| line.contains("error") && !HARMLESS.iter().any(|harmless| line.contains(harmless));
    if success || !error.lines().any(|line| is_bad(&line)) && !error.trim().is_empty() {
        return Ok(());
    }
    Err(refusal("scancel", error))
}

/// Returns the failure of a command with this message.
pub(super) fn refusal(command: &str, error: &str) -> Refusal {
    let has = |words: &[&str]| words.iter().any(|word| error.contains(word));
    let message = if error.trim().is_empty() {
        format!("{command} failed without a message")
    } else {
        format!("Slurm refuses: {}", short(error))
    };
    if has(&UNKNOWN) {
        Refusal::unknown(message)
    } else if has(&EXHAUSTED) {
        Refusal::exhausted(message)
    } else {
        Refusal::wrong(message)
    }
}

/// Returns the start of a message, on one line.
fn short(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(MESSAGE_CHARS_MAX).collect()
}
