//! Tables that the documentation shows, written by the tests that make them.

use kernelgate::core::packed;

/// Writes `docs/results/<file>` when `KERNELGATE_WRITE=docs` is set, packed if that ends in `.xz`; tests judge what they made, not what is
/// written.
pub fn write(file: &str, title: &str, text: &str) {
    if std::env::var("KERNELGATE_WRITE").is_ok_and(|what| what == "docs") {
        let path = format!("{}/docs/results/{file}", env!("CARGO_MANIFEST_DIR"));
        let text = format!(
            "# {title}\n\nMade by a test; see [the evidence](../simulator-evidence.md).\n\n{}\n",
            text.trim_end()
        );
        let content = if file.ends_with(".xz") { packed::pack(text.as_bytes()) } else { Ok(text.into_bytes()) };
        content.and_then(|content| std::fs::write(&path, content)).unwrap_or_else(|e| panic!("{path}: {e}"));
    }
}
