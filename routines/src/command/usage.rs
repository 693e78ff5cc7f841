//! `usage`: the consumption of routines by tenants.

use std::process::ExitCode;

use clap::Args;
use comfy_table::{Table, presets};
use serde_json::json;
use taskwork_cli::{
    Failure,
    command::{Level, print},
    printable,
};

use super::Access;
use crate::service::Record;

#[derive(Debug, Args)]
pub(super) struct Usage {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: Access,
}

pub(super) fn usage(Usage { json, access }: &Usage) -> Result<ExitCode, Failure> {
    let records = access.run(Level::Warn, async |service, _| Ok(service.usage(true).await?))?;
    if *json {
        print(&format!("{}\n", json!({ "usage": records })));
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new();
    let header = ["TENANT", "ROUTINE", "CALLS", "FAILED", "WALL S", "CPU S", "PEAK MIB", "IN MIB", "OUT MIB"];
    table.load_preset(presets::NOTHING).set_header(header);
    let seconds = |us: u64| format!("{:.2}", us as f64 / 1e6);
    let mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
    for Record { tenant, routine, usage } in &records {
        let tenant = if tenant.is_default() { "-".to_owned() } else { tenant.to_string() };
        let [calls, failed] = [usage.calls, usage.failed].map(|count| count.to_string());
        let times = [usage.wall_us, usage.user_us + usage.system_us].map(seconds);
        let sizes = [usage.peak_memory_bytes, usage.in_bytes, usage.out_bytes].map(mib);
        let head = [tenant, routine.clone(), calls, failed];
        table.add_row(head.into_iter().chain(times).chain(sizes));
    }
    print(&format!("{}\n", printable::lines(&table.trim_fmt())));
    Ok(ExitCode::SUCCESS)
}
