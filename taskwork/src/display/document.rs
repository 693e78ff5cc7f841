//! Documents that a running job creates on request, and their messages.

use serde::Serialize;
use serde_json::{Value, json};

use super::{VERSION, svg::is_inert};

/// The language of a picture or document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Format {
    /// Plain text.
    Text,
    /// SVG, a picture for browsers.
    Svg,
    /// DOT, a graph for Graphviz.
    Dot,
    /// JSON.
    Json,
}

/// A document about a job.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Document {
    /// The language of the content.
    pub format: Format,
    /// The content as text; empty if it is [data](Self::data) only, whose JSON then is the text.
    pub content: String,
    /// The content as data, for scripts.
    pub data: Value,
}

impl Format {
    /// Returns the format of a name.
    pub(super) fn named(name: &str) -> Option<Self> {
        let all = [Self::Text, Self::Svg, Self::Dot, Self::Json];
        all.into_iter().find(|format| serde_json::to_value(format).is_ok_and(|own| own == name))
    }
}

impl Document {
    /// Creates a document from its text.
    pub fn new(format: Format, content: String) -> Self {
        Self { format, content, data: Value::Null }
    }

    /// Creates a document in JSON.
    pub fn json(data: Value) -> Self {
        Self { format: Format::Json, content: String::new(), data }
    }

    /// Adds the content as data, for scripts.
    #[must_use]
    pub fn with_data(self, data: Value) -> Self {
        Self { data, ..self }
    }

    /// Returns the content of a file with the document.
    pub fn into_text(self) -> String {
        if self.content.is_empty() && !self.data.is_null() { self.data.to_string() } else { self.content }
    }
}

/// Returns the request for a document.
pub(crate) fn request_of(name: &str, argument: Option<&str>) -> Value {
    json!({ "version": VERSION, "document": name, "argument": argument })
}

/// Returns the name and the argument of a request; `None` if it is of another version.
pub(crate) fn requested(request: &Value) -> Option<(&str, Option<&str>)> {
    let name = request["document"].as_str()?;
    (request["version"] == VERSION).then(|| (name, request["argument"].as_str()))
}

/// Returns the answer to a request: the document, or the reason why there is none.
pub(crate) fn answer_of(document: &Result<Document, String>) -> Value {
    match document {
        Ok(document) => json!({ "version": VERSION, "document": document }),
        Err(reason) => json!({ "version": VERSION, "refused": reason }),
    }
}

/// Returns the document in an answer, which may contain anything.
///
/// # Errors
/// The reason why there is none.
pub(crate) fn document_of(answer: &Value) -> Result<Document, String> {
    if let Some(reason) = answer["refused"].as_str() {
        return Err(reason.to_owned());
    }
    let document = &answer["document"];
    let format = document["format"].as_str().and_then(Format::named);
    let (Some(format), true) = (format, answer["version"] == VERSION) else {
        return Err("the answer is in an unknown format: use the version of this command that the nodes use"
            .to_owned());
    };
    let content = document["content"].as_str().unwrap_or_default().to_owned();
    if format == Format::Svg && !is_inert(&content) {
        return Err("the picture is not shown, because it contains more than shapes and texts".to_owned());
    }
    Ok(Document { format, content, data: document["data"].clone() })
}
