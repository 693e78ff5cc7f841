//! The display of a job, as its framework describes it: as text, and its documents (`taskwork job ID --show NAME`).

use std::{fmt::Write as _, path::PathBuf, time::Duration};

use serde_json::{Value, json};
use taskwork::{
    JobId,
    display::{Document, JobDisplay},
};
use taskwork_cli::{Failure, check_outputs, printable, write_output};

use super::{connection::Connection, table};

/// The maximum time to wait for a document.
const DOCUMENT_TIMEOUT: Duration = Duration::from_secs(15);

/// The options for documents.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Only print this picture or document of the job. Without this option, the command lists their names
    #[arg(long, value_name = "NAME", conflicts_with = "timeline")]
    show: Option<String>,
    /// The argument of the document, if it has one
    #[arg(long, value_name = "ARGUMENT", requires = "show")]
    about: Option<String>,
    /// Write the document into this file. The folder must exist
    #[arg(long, value_name = "FILE", requires = "show")]
    output: Option<PathBuf>,
}

impl Arguments {
    /// Returns the name of the requested document, if any.
    pub(super) fn asked(&self) -> Option<&str> {
        self.show.as_deref()
    }
}

/// Prints or writes a picture or document of a job.
pub(super) async fn run(
    connection: &Connection,
    id: &JobId,
    name: &str,
    arguments: &Arguments,
) -> Result<(), Failure> {
    check_outputs(&[], &[("--output", arguments.output.as_deref())])?;
    let job = connection.client.job(id).await?;
    let display = job.display.unwrap_or_default();
    let picture = display.pictures.iter().find(|picture| picture.name == name);
    let is_offered = display.documents.iter().any(|offer| offer.name == name);
    let document = match picture {
        Some(_) if !is_offered && arguments.about.is_some() => {
            return Err(Failure::usage(format!("{name} is a picture, which takes no --about")));
        }
        Some(picture) if !is_offered => Document::new(picture.format, picture.content.clone()),
        None if !is_offered && !job.record.state.is_over() => return Err(not_offered(id, name, &display)),
        _ => connection.client.document(id, name, arguments.about.as_deref(), DOCUMENT_TIMEOUT).await?,
    };
    let Some(file) = &arguments.output else {
        let Document { data, content, .. } = &document;
        let data = if data.is_null() { json!(content) } else { data.clone() };
        connection.say_as_is(&data, || printable::lines(&document.clone().into_text()));
        return Ok(());
    };
    let content = document.into_text();
    write_output(file, &content)?;
    let (file, bytes) = (file.display().to_string(), content.len());
    connection.say(
        || json!({ "document": name, "file": file, "bytes": bytes }),
        || format!("{name} of job {id} was written to {file}: {bytes} bytes"),
    );
    Ok(())
}

fn not_offered(id: &JobId, name: &str, display: &JobDisplay) -> Failure {
    let offers = display.documents.iter().map(|offer| &offer.name);
    let names: Vec<&str> =
        offers.chain(display.pictures.iter().map(|picture| &picture.name)).map(String::as_str).collect();
    if names.is_empty() {
        // It may have some later, so this is no wrong usage.
        let reason =
            format!("job {id} has no documents, or has not started yet: then try again in some seconds");
        return Failure::failed(reason);
    }
    Failure::usage(format!("job {id} has no document {name}. It has: {}", names.join(", ")))
}

/// Formats a display for a terminal: its values, tables, and the names of its pictures and documents.
pub(super) fn text(display: &JobDisplay) -> String {
    let mut text = String::new();
    let values = values(display);
    if !values.is_empty() {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "\n{values}");
    }
    for table in &display.tables {
        let _ = write!(text, "\n{}\n{table}", table.label);
    }
    let offers = display.documents.iter().map(|offer| (&offer.name, offer.argument.as_deref(), &offer.label));
    let pictures = display.pictures.iter().map(|picture| (&picture.name, None, &picture.label));
    let rows = offers.chain(pictures).map(|(name, argument, label)| {
        let about = argument.map_or_else(String::new, |argument| format!(" --about {argument}"));
        vec![format!("{name}{about}"), label.clone()]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if !rows.is_empty() {
        let _ = write!(text, "\n{}", table::table(&["--show", ""], rows));
    }
    printable::lines(&text)
}

/// Formats the single values of a display in one line.
pub(crate) fn values(display: &JobDisplay) -> String {
    let values = display.values.iter().map(|field| format!("{} {}", field.label, field.text()));
    values.collect::<Vec<_>>().join("  ")
}

/// Returns a display as JSON, for scripts, without the contents of its pictures.
pub(super) fn json(display: &JobDisplay) -> Value {
    let mut json = json!(display);
    for picture in json["pictures"].as_array_mut().into_iter().flatten() {
        picture.as_object_mut().map(|picture| picture.remove("content"));
    }
    json
}

#[cfg(test)]
mod tests {
    use taskwork::display::{Column, Field, Offer, Picture, Row, Table, Unit};

    use super::*;

    const HOSTILE: &str = "\u{1b}[2J\u{202e}x";

    fn display(label: &str) -> JobDisplay {
        let columns = vec![Column::new("part", label, Unit::Text), Column::new("done", "done", Unit::Share)];
        let row = Row::new().with("part", label).with("done", 0.5);
        JobDisplay::new()
            .value(Field::new("eggs", label, Unit::Count, 1_200_u64))
            .value(Field::new("nest", "nest", Unit::Text, label))
            .table(Table::new("parts", label, columns).row(row))
            .picture(Picture::svg("nest.svg", label, "<svg/>".to_owned()))
            .document(Offer::new("egg", label).argument("NUMBER"))
    }

    #[test]
    fn display_is_shown_as_text_and_json() {
        let text = "
eggs 1,200  nest eggs

eggs
EGGS    DONE
eggs  50.0 %

--show
egg --about NUMBER  eggs
nest.svg            eggs
";
        assert_eq!(super::text(&display("eggs")), text);
        assert_eq!(super::text(&JobDisplay::new()), "");
        let json = json(&display("eggs"));
        assert_eq!(
            (&json["tables"][0]["rows"][0]["done"], &json["pictures"][0]["content"]),
            (&json!(0.5), &Value::Null)
        );
        let failure = not_offered(&"j-0000000001".parse().unwrap(), "x", &display("eggs")).to_string();
        assert!(failure.contains("has no document x. It has: egg, nest.svg"), "{failure}");
    }

    #[test]
    fn hostile_display_does_not_control_the_terminal() {
        let text = text(&display(HOSTILE));
        assert!(
            !text.contains('\u{1b}') && !text.contains('\u{202e}') && text.contains("?[2J?x"),
            "{text:?}"
        );
    }
}
