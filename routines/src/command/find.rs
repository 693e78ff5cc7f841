//! `find`: the routines of a store.

use std::process::ExitCode;

use clap::Args;
use comfy_table::{Table, presets};
use serde_json::json;
use taskwork_cli::{Failure, command::print, printable};

use super::StoreArguments;
use crate::library::{Library, Listed, Query};

#[derive(Debug, Args)]
pub(super) struct Find {
    /// Words, all of which are in the name, the text or the tags.
    #[arg(value_name = "QUERY")]
    query: Vec<String>,
    /// Only routines with this tag.
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
    #[command(flatten)]
    store: StoreArguments,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) fn find(arguments: &Find) -> Result<ExitCode, Failure> {
    let (store, library, mut routines) = (arguments.store.open()?, Library::default(), Vec::new());
    let mut query = Query { text: arguments.query.join(" "), tag: arguments.tag.clone(), ..Query::default() };
    loop {
        let page = library.find(&store, &query)?;
        routines.extend(page.routines);
        query.cursor = page.next;
        if query.cursor.is_none() {
            break;
        }
    }
    if arguments.json {
        print(&format!("{}\n", json!({ "routines": routines })));
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(["ROUTINE", "TAGS", "DESCRIPTION"]);
    for Listed { routine, tags, description, .. } in &routines {
        table.add_row([&**routine, &tags.join(" "), description.lines().next().unwrap_or_default()]);
    }
    print(&format!("{}\n", printable::lines(&table.trim_fmt())));
    Ok(ExitCode::SUCCESS)
}
