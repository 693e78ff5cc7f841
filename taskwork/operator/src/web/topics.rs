//! The subscription of a stream.

/// The maximum number of jobs that one stream follows.
const JOBS_MAX: usize = 8;

/// The topics of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Topics {
    /// Whether the view as a whole.
    pub(super) view: bool,
    /// The jobs with complete details.
    pub(super) jobs: Vec<String>,
}

/// The query of a request for a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Query {
    pub(super) topics: Topics,
    /// The last tick that the browser knows.
    pub(super) since: Option<u64>,
}

impl Query {
    /// Parses a query such as `topics=view,job:j-0000000001&since=7`. The default topic is the view.
    ///
    /// # Errors
    /// If the query is malformed: the reason.
    pub(super) fn of(text: &str) -> Result<Self, String> {
        let mut query = Self { topics: Topics::default(), since: None };
        let mut has_topics = false;
        for (name, value) in form_urlencoded::parse(text.as_bytes()) {
            match &*name {
                "topics" => {
                    has_topics = true;
                    value.split(',').try_for_each(|topic| query.topics.add(topic))?;
                }
                "since" => {
                    let number = value.parse().map_err(|_| "since is the number of a tick".to_owned())?;
                    query.since = Some(number);
                }
                _ => return Err("the query has topics and since only".to_owned()),
            }
        }
        query.topics.view |= !has_topics;
        Ok(query)
    }
}

impl Topics {
    fn add(&mut self, topic: &str) -> Result<(), String> {
        match topic.strip_prefix("job:") {
            Some(job) if self.jobs.iter().any(|known| known == job) => {}
            Some(job) if self.jobs.len() < JOBS_MAX => self.jobs.push(job.to_owned()),
            Some(_) => return Err(format!("a stream follows at most {JOBS_MAX} jobs")),
            None if topic == "view" => self.view = true,
            None => return Err("topics are view, and job:ID".to_owned()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_read_and_bounded() {
        let of = |text: &str| {
            Query::of(text).map(|query| (query.topics.view, query.topics.jobs.len(), query.since))
        };
        assert_eq!(of(""), Ok((true, 0, None)));
        assert_eq!(of("topics=view%2Cjob%3Aj-0000000001&since=7"), Ok((true, 1, Some(7))));
        assert_eq!(of("topics=job:a,job:a,job:b"), Ok((false, 2, None)));
        for wrong in ["topics=", "topics=jobs", "since=-1", "since=x", "other=1"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
        let many: Vec<String> = (0..9).map(|job| format!("job:{job}")).collect();
        assert!(of(&format!("topics={}", many.join(","))).unwrap_err().contains('8'));
    }
}
