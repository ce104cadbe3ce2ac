"""Mutant schemata: Rust sources with mutants of cargo-mutants' list behind switches that an environment variable turns on."""

import re
import sys

try:
    import tree_sitter
    import tree_sitter_rust
except ImportError:
    sys.exit("needs two wheels: pip install tree-sitter tree-sitter-rust")

# Not KERNELGATE_..., which functional tests take from the processes that they start.
SWITCH = "SWITCHED_MUTANT"
SWITCHES = f"""
/// Whether this mutant is switched on.
#[doc(hidden)]
pub fn mutant(number: u32) -> bool {{
    static SWITCHED: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *SWITCHED.get_or_init(|| std::env::var("{SWITCH}").ok().and_then(|n| n.parse().ok()).unwrap_or(u32::MAX)) == number
}}
"""
PARSER = tree_sitter.Parser(tree_sitter.Language(tree_sitter_rust.language()))


class NotSwitchable(Exception):
    """Why a mutant cannot be switched at run time."""


def switch_at(mutant, source, tree):
    """The node that is replaced, and what its text becomes, given how a node is written with the switches inside of it."""

    def point(position):
        line = source.split(b"\n")[position["line"] - 1].decode()
        return position["line"] - 1, len(line[: position["column"] - 1].encode())

    def up(node, *kinds):
        while node.type not in kinds:
            node = node.parent
        return node

    start, end = point(mutant["span"]["start"]), point(mutant["span"]["end"])
    node = tree.root_node.descendant_for_point_range(start, end)
    refuse_constants(node)
    genre, new, on = mutant["genre"], mutant["replacement"], f"crate::mutant({mutant['number']})"
    if genre == "FnValue":
        body = up(node, "function_item").child_by_field_name("body")
        return body, lambda text, _: text.replace("{", f"{{ if {on} {{ return {new}; }} ", 1)
    if genre == "MatchArm":
        return up(node, "match_arm").child_by_field_name("pattern"), lambda text, _: guarded(text, f"!{on} &&")
    if genre == "MatchArmGuard":
        return up(node, "match_pattern"), lambda text, _: guarded(text, f"{on} ||" if new == "true" else f"!{on} &&")
    if genre == "StructField":
        # The span has the comma as well.
        field = tree.root_node.descendant_for_point_range(start, start)
        field = up(field, "field_initializer", "shorthand_field_initializer")
        whole = up(field, "struct_expression")
        return whole, lambda text, write: f"(if {on} {{ {without(whole, field, write)} }} else {{ {text} }})"
    whole = node.parent
    if genre == "UnaryOperator" and whole.type == "unary_expression":
        return whole, lambda text, write: f"(if {on} {{ {new}{write(whole.children[1])} }} else {{ {text} }})"
    if genre == "BinaryOperator" and whole.type in ("binary_expression", "compound_assignment_expr"):
        left, right = whole.child_by_field_name("left"), whole.child_by_field_name("right")
        around = "({})" if whole.type == "binary_expression" else "{{{}}}"
        choice = f"if {on} {{{{ {{}} {new} {{}} }}}} else {{{{ {{}} }}}}"
        return whole, lambda text, write: around.format(choice.format(write(left), write(right), text))
    raise NotSwitchable(f"{genre} {new} in a {whole.type}")


def without(whole, field, write):
    """A struct expression that lacks a field, which then comes from its base."""
    fields = [child for child in whole.child_by_field_name("body").named_children if child.type != "line_comment"]
    others = ", ".join(write(child) for child in fields if child.id != field.id)
    return f"{write(whole.child_by_field_name('name'))} {{ {others} }}"


def guarded(pattern, demand):
    """A pattern under one more demand."""
    bare, _, guard = pattern.partition(" if ")
    if " let " in f" {guard}":
        raise NotSwitchable("a guard that binds")
    return f"{bare} if {demand} ({guard or 'true'})"


def refuse_constants(node):
    """Turns away what only the compiler evaluates, and what is not compiled here."""
    while node is not None:
        modifiers = [child.text for child in node.children if child.type == "function_modifiers"]
        if node.type in ("const_item", "static_item", "const_block", "array_type", "enum_variant") or b"const" in modifiers:
            raise NotSwitchable("a constant")
        before = node.prev_sibling
        while before is not None and before.type in ("attribute_item", "line_comment"):
            if b"cfg(not(" in before.text:
                raise NotSwitchable("not compiled here")
            before = before.prev_sibling
        node = node.parent


def rewritten(source, mutants, refused):
    """A file with the switches of its mutants, each between marks that tell where it is."""
    tree = PARSER.parse(source)
    switches = {}
    for mutant in mutants:
        try:
            node, switch = switch_at(mutant, source, tree)
            switches.setdefault(node.id, []).append((mutant["number"], switch))
        except NotSwitchable as why:
            refused[mutant["name"]] = str(why)

    def write(node):
        text, at = "", node.start_byte
        for child in node.children:
            text += source[at : child.start_byte].decode() + write(child)
            at = child.end_byte
        text += source[at : node.end_byte].decode()
        for number, switch in switches.get(node.id, []):
            text = f"/*<{number}*/{switch(text, write)}/*{number}>*/"
        return text

    return write(tree.root_node)


def blamed(work, error):
    """The number of the mutant between whose marks an error of the compiler lies."""
    for span in sorted(error["spans"], key=lambda span: not span["is_primary"]):
        with open(f"{work}/tree/{span['file_name']}", "rb") as file:
            text = file.read()
        around = set()
        for mark in re.finditer(rb"/\*<(\d+)\*/", text):
            end = text.find(b"/*" + mark[1] + b">*/", mark.end())
            if mark.start() <= span["byte_start"] and span["byte_end"] <= end:
                around.add((end - mark.start(), int(mark[1])))
        if around:
            # The innermost: what is around it may compile.
            return min(around)[1]
    return None
