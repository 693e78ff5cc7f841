//! Users' questions about the job: the node whose companion knows answers.

use std::sync::Arc;

use zk::question::{self, Questions};

use super::Coordination;
use crate::shell::companion::Host;

impl Coordination {
    /// Passes questions one by one to the companion, and its answers to the users.
    pub(super) async fn answer_questions(self: Arc<Self>, companion: Arc<Host>) {
        // A job within one process receives no questions.
        if !self.visibility.is_public() {
            return;
        }
        let mut questions = Questions::new(self.store(), self.cluster.clone(), &self.job.0);
        let mut retry = self.retry();
        loop {
            let answered = async {
                let (name, question) = questions.next().await?;
                let Some(answer) = companion.desk.provider.answer(&question) else { return Ok(()) };
                self.give_answer(&name, answer).await
            };
            match answered.await {
                Ok(()) => retry.succeeded(),
                // The job was removed.
                Err(zk::Error::NoNode { .. }) => return,
                Err(error) if retry.again(&*self.store, "answering a question", &error).await => {}
                Err(_) => return,
            }
        }
    }

    async fn give_answer(&self, name: &str, answer: serde_json::Value) -> zk::Result<()> {
        match question::answer(&*self.store, &self.cluster, &self.job.0, name, answer).await {
            Err(error @ zk::Error::TooLarge { .. }) => {
                tracing::warn!(%error, "a question is not answered");
                Ok(())
            }
            other => other,
        }
    }
}
