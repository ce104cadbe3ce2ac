//! Tables that the documentation shows, written by the tests that make them.

/// Writes `docs/results/<file>` when `KERNELGATE_WRITE=docs` is set; tests judge what they made, not what is written.
pub fn write(file: &str, title: &str, text: &str) {
    if std::env::var("KERNELGATE_WRITE").is_ok_and(|what| what == "docs") {
        let path = format!("{}/docs/results/{file}", env!("CARGO_MANIFEST_DIR"));
        let text = format!(
            "# {title}\n\nMade by a test; see [the evidence](../simulator-evidence.md).\n\n{}\n",
            text.trim_end()
        );
        std::fs::write(&path, text).unwrap_or_else(|e| panic!("{path}: {e}"));
    }
}
