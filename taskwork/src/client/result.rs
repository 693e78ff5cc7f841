//! The result of a job as JSON, for users without its program.

use serde_json::{Value, json};
use tokio::time::{self, Instant};
use zk::{
    figures::{self, Best, NodeFigures, Sense},
    job::{self, JobState},
};

use super::{Client, ClientError, jobs::word};
use crate::{
    figures::Figures,
    id::JobId,
    shell::submit::{LAST_FIGURES_TIMEOUT, LOOK_AGAIN},
};

impl Client {
    /// Returns the output of a job as JSON. For a job that was cancelled or suspended, or that failed, `output` is null,
    /// `variables` contains the best values that were known, and `stopped` is the state of the job.
    ///
    /// # Errors
    /// If there is no such job, it has no result or none that can be shown as JSON (it may be too large), or
    /// ZooKeeper was unavailable for too long.
    pub async fn shown_result(&self, job: &JobId) -> Result<Value, ClientError> {
        let record = self.record(job).await?;
        let read = self.ask(|store| async move {
            match job::result(&*store, self.cluster(), &job.0).await {
                Ok(outcome) => Ok(Some(outcome)),
                Err(zk::Error::NoNode { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        });
        // A job that failed by its output has a result, which is no answer.
        if let Some(outcome) = read.await?.filter(|outcome| outcome.failure.is_none()) {
            if outcome.shown.is_null() {
                let reason = format!(
                    "has a result of {} bytes that only its program can read: it is too large to be shown, or \
                     has no JSON form",
                    outcome.result.len()
                );
                return Err(ClientError::WrongState { job: job.clone(), reason });
            }
            return Ok(outcome.shown);
        }
        let is_stopped = matches!(record.state, JobState::Suspended | JobState::Cancelled | JobState::Failed);
        if is_stopped && let Some(variables) = best_known(self.last_reports(job).await?.into_iter()) {
            return Ok(json!({ "output": null, "variables": variables, "stopped": word(record.state) }));
        }
        let reason = record.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        let reason = format!("has no result; it is {}{reason}", word(record.state));
        Err(ClientError::WrongState { job: job.clone(), reason })
    }

    /// Returns the reports on a job that was stopped. Waits for those of its nodes that have not written their last one,
    /// which they do shortly afterwards.
    async fn last_reports(&self, job: &JobId) -> Result<Vec<NodeFigures<Figures>>, ClientError> {
        let deadline = Instant::now() + LAST_FIGURES_TIMEOUT;
        loop {
            let read = self
                .ask(|store| async move { figures::read::<Figures>(&*store, self.cluster(), &job.0).await });
            let reports = read.await?;
            let members =
                self.ask(|store| async move { store.children(&self.cluster().members()).await }).await?;
            // A node that is no longer a member reports nothing more.
            let is_due = reports.iter().any(|(node, report)| !report.last && members.contains(node));
            if !is_due || Instant::now() >= deadline {
                return Ok(reports.into_iter().map(|(_, report)| report).collect());
            }
            time::sleep(LOOK_AGAIN).await;
        }
    }
}

/// Returns the variables of the report with the best score, and of the latest one among equals. Reports of earlier
/// leaders remain when a job is suspended several times.
fn best_known(reports: impl Iterator<Item = NodeFigures<Figures>>) -> Option<Value> {
    let has_value = |variables: &Value| {
        variables.as_object().is_some_and(|variables| variables.values().any(|value| !value.is_null()))
    };
    let quality = |best: Option<&Best>| match best {
        Some(Best { value, sense: Sense::Min, .. }) => -value,
        Some(Best { value, sense: Sense::Max, .. }) => *value,
        None => f64::NEG_INFINITY,
    };
    reports
        .filter(|report| report.variables.as_ref().is_some_and(has_value))
        .max_by(|a, b| {
            let order = quality(a.best.as_ref()).total_cmp(&quality(b.best.as_ref()));
            order.then(a.at_ms.cmp(&b.at_ms))
        })?
        .variables
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(variables: Value, cost: Option<f64>, at_ms: u64) -> NodeFigures<Figures> {
        let best = cost.map(|value| Best { value, sense: Sense::Min, name: "best".to_owned() });
        NodeFigures { variables: Some(variables), best, at_ms, ..NodeFigures::default() }
    }

    #[test]
    fn variables_of_best_score_win_even_from_a_slow_clock() {
        let reports = [
            NodeFigures { best: report(json!({}), Some(1.0), 0).best, ..NodeFigures::default() },
            report(json!({ "best": null }), None, 9),
            report(json!({ "best": "tour of 8" }), Some(8.0), 1),
            report(json!({ "best": "tour of 9" }), Some(9.0), 2),
            report(json!({ "best": "earlier tour of 8" }), Some(8.0), 0),
        ];
        assert_eq!(best_known(reports.into_iter()), Some(json!({ "best": "tour of 8" })));
        assert_eq!(best_known(std::iter::empty()), None);
    }
}
