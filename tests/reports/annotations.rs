//! Annotations, taken apart as the runner of GitHub Actions does it.

use crate::support::{every_kind, report, stdout};

/// One workflow command.
#[derive(Debug, PartialEq)]
struct Command {
    name: String,
    properties: Vec<(String, String)>,
    message: String,
}

impl Command {
    fn get(&self, name: &str) -> Option<&str> {
        self.properties.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// The rules of the runner: a line that begins with `::`, a name, properties up to the next `::`, a message; escapes are
/// undone in this order.
fn parse(line: &str) -> Option<Command> {
    let (head, message) = line.strip_prefix("::")?.split_once("::")?;
    let (name, properties) = head.split_once(' ').unwrap_or((head, ""));
    let data = |text: &str| text.replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%");
    let property = |text: &str| data(&text.replace("%3A", ":").replace("%2C", ","));
    let pairs = properties.split(',').filter_map(|pair| pair.split_once('='));
    Some(Command {
        name: name.into(),
        properties: pairs.map(|(key, value)| (key.into(), property(value))).collect(),
        message: data(message),
    })
}

#[test]
fn the_runner_reads_every_line_and_nothing_breaks_out() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("kernels")).unwrap();
    std::fs::write(root.path().join("kernels/softmax.cu"), "").unwrap();
    let text = stdout(&report(&["--annotations", "--root", root.path().to_str().unwrap()]));
    let commands: Vec<Command> = text.lines().map(|line| parse(line).unwrap_or_else(|| panic!("{line}"))).collect();
    let summary = every_kind();
    let failures = summary.records.iter().filter(|record| record.outcome.verdict.is_failure()).count();
    assert_eq!(commands.iter().filter(|command| command.name == "error").count(), failures);
    assert_eq!(commands.iter().filter(|command| command.name == "warning").count(), 1, "the unclear one");
    assert!(
        commands
            .iter()
            .all(|command| command.properties.iter().all(|(key, _)| ["file", "line", "title"].contains(&key.as_str())))
    );
    let softmax = commands.iter().find(|c| c.get("file").is_some()).unwrap();
    assert_eq!((softmax.get("file"), softmax.get("line")), (Some("kernels/softmax.cu"), Some("17")));
    assert_eq!(softmax.get("title"), Some("fail: softmax::fast::f16::correctness"));
    assert!(softmax.message.contains("second line\nshape rows=3,cols=5"), "{}", softmax.message);
    let hostile = commands.iter().find(|c| c.message.contains("second <line>")).unwrap();
    assert!(hostile.message.starts_with("<b>x</b>]]>\\u{0}|a\nb::c%d\\u{1b}[31m"), "{}", hostile.message);
    assert!(!text.contains('\u{1b}'));
}
