//! `taskwork doctor`.

use serde_json::json;
use taskwork::client::doctor::Finding;

use super::table;

/// Returns the findings as JSON, for scripts.
pub(super) fn json(findings: &[Finding]) -> serde_json::Value {
    let objects = findings.iter().map(|Finding { check, ok, said, advice, .. }| {
        json!({ "check": check, "ok": ok, "said": said, "advice": advice })
    });
    objects.collect()
}

/// Returns the findings as a table.
pub(super) fn text(findings: &[Finding]) -> String {
    let rows = findings.iter().map(|Finding { check, ok, said, advice, .. }| {
        let advice = if advice.is_empty() { String::new() } else { format!(". {advice}") };
        let verdict = if *ok { "ok" } else { "wrong" };
        vec![(*check).to_owned(), verdict.to_owned(), format!("{said}{advice}")]
    });
    table::table(&["CHECK", "", "FOUND"], rows)
}
