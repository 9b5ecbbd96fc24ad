"""The modules Relation, Graphs and UndirectedGraphs. A relation over S is a function from pairs to Booleans, a graph a
record of nodes and edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import product

from fencepost.tla.library.definitions import Binary, Module, explicit, holds, wrong
from fencepost.tla.library.finite import FINITE_SETS
from fencepost.tla.library.numbers import NATURALS
from fencepost.tla.library.sequences import SEQUENCES, SEQUENCES_EXT
from fencepost.tla.sets import Records, Sequences, Subsets, Tuples, filtered, intersection, subset, union
from fencepost.tla.values import (
    EMPTY_SET,
    FunctionValue,
    Sequence,
    Set,
    SetValue,
    Value,
    apply,
    equal,
    function,
    record,
    set_of,
)

RELATION = Module("Relation", NATURALS, FINITE_SETS)
GRAPHS = Module("Graphs", NATURALS, SEQUENCES, FINITE_SETS, SEQUENCES_EXT, RELATION)
UNDIRECTED_GRAPHS = Module("UndirectedGraphs")

Related = Callable[[Value, Value], bool]

# -- Relation ----------------------------------------------------------------------------------------------------------


def _relation(of: Value) -> Related:
    return lambda one, other: holds(apply(of, Sequence((one, other))), "a relation")


def _operator(before: Binary) -> Related:
    return lambda one, other: holds(before(one, other), "a relation")


def _is_reflexive(related: Related, members: tuple[Value, ...]) -> bool:
    return all(related(each, each) for each in members)


def _is_irreflexive(related: Related, members: tuple[Value, ...]) -> bool:
    return not any(related(each, each) for each in members)


def _is_symmetric(related: Related, members: tuple[Value, ...]) -> bool:
    return all(related(x, y) is related(y, x) for x, y in product(members, repeat=2))


def _is_antisymmetric(related: Related, members: tuple[Value, ...]) -> bool:
    return all(not (related(x, y) and related(y, x)) or equal(x, y) for x, y in product(members, repeat=2))


def _is_asymmetric(related: Related, members: tuple[Value, ...]) -> bool:
    return not any(related(x, y) and related(y, x) for x, y in product(members, repeat=2))


def _is_transitive(related: Related, members: tuple[Value, ...]) -> bool:
    return all(related(x, z) for x, y in product(members, repeat=2) if related(x, y) for z in members if related(y, z))


def _is_strict_order(related: Related, members: tuple[Value, ...]) -> bool:
    rules = (_is_irreflexive, _is_antisymmetric, _is_transitive)
    return all(rule(related, members) for rule in rules)


def _is_order(related: Related, members: tuple[Value, ...]) -> bool:
    return all(rule(related, members) for rule in (_is_reflexive, _is_antisymmetric, _is_transitive))


def _is_strict_total_order(related: Related, members: tuple[Value, ...]) -> bool:
    if not _is_strict_order(related, members):
        return False
    return all(equal(x, y) or related(x, y) or related(y, x) for x, y in product(members, repeat=2))


def _is_total_order(related: Related, members: tuple[Value, ...]) -> bool:
    if not _is_order(related, members):
        return False
    return all(related(x, y) or related(y, x) for x, y in product(members, repeat=2))


_PROPERTIES: dict[str, Callable[[Related, tuple[Value, ...]], bool]] = {
    "IsReflexive": _is_reflexive,
    "IsIrreflexive": _is_irreflexive,
    "IsSymmetric": _is_symmetric,
    "IsAntiSymmetric": _is_antisymmetric,
    "IsAsymmetric": _is_asymmetric,
    "IsTransitive": _is_transitive,
    "IsStrictlyPartiallyOrdered": _is_strict_order,
    "IsPartiallyOrdered": _is_order,
    "IsStrictlyTotallyOrdered": _is_strict_total_order,
    "IsTotallyOrdered": _is_total_order,
}


def _declare(name: str, rule: Callable[[Related, tuple[Value, ...]], bool]) -> None:
    @RELATION.operator(name)
    def of_relation(relation: Value, members: Value) -> bool:
        return rule(_relation(relation), explicit(members, name).in_order())

    @RELATION.operator(f"{name}Under")
    def of_operator(before: Binary, members: Value) -> bool:
        return rule(_operator(before), explicit(members, name).in_order())


for _name, _rule in _PROPERTIES.items():
    _declare(_name, _rule)


@RELATION.operator("TransitiveClosure")
def closure(relation: Value, members: Value) -> Value:
    return _as_function(_closed(_relation(relation), members), members)


@RELATION.operator("ReflexiveTransitiveClosure")
def reflexive_closure(relation: Value, members: Value) -> Value:
    pairs = _closed(_relation(relation), members)
    whole = explicit(members, "ReflexiveTransitiveClosure")
    return _as_function(pairs | {(each, each) for each in whole.items}, members)


@RELATION.operator("IsConnected")
def is_connected(relation: Value, members: Value) -> bool:
    pairs = _closed(_relation(relation), members)
    whole = explicit(members, "IsConnected").in_order()
    return all(equal(x, y) or (x, y) in pairs for x, y in product(whole, repeat=2))


def _closed(related: Related, members: Value) -> set[tuple[Value, Value]]:
    whole = explicit(members, "TransitiveClosure").in_order()
    pairs = {(x, y) for x, y in product(whole, repeat=2) if related(x, y)}
    for middle, x, y in product(whole, repeat=3):
        if (x, middle) in pairs and (middle, y) in pairs:
            pairs.add((x, y))
    return pairs


def _as_function(pairs: set[tuple[Value, Value]], members: Value) -> Value:
    whole = explicit(members, "TransitiveClosure").in_order()
    return function({Sequence(each): each in pairs for each in product(whole, repeat=2)})


# -- graphs of both kinds ----------------------------------------------------------------------------------------------


def _nodes(graph: Value) -> Set:
    return set_of(apply(graph, "node"), "a graph's nodes").explicit()


def _edges(graph: Value) -> Set:
    return set_of(apply(graph, "edge"), "a graph's edges").explicit()


def _is_graph(graph: Value) -> bool:
    return equal(graph, record(node=apply(graph, "node"), edge=apply(graph, "edge")))


Neighbours = dict[Value, list[Value]]


def _directed(graph: Value) -> Iterator[tuple[Value, Value]]:
    for edge in _edges(graph).members():
        if isinstance(edge, FunctionValue) and isinstance(edge.explicit(), Sequence) and edge.size() == 2:
            yield edge.apply(1), edge.apply(2)


def _undirected(graph: Value) -> Iterator[tuple[Value, Value]]:
    for edge in _edges(graph).members():
        ends = edge.explicit().in_order() if isinstance(edge, SetValue) else ()
        if 1 <= len(ends) <= 2:
            yield ends[0], ends[-1]
            if len(ends) == 2:
                yield ends[1], ends[0]


def _neighbours(graph: Value, edges: Iterable[tuple[Value, Value]]) -> Neighbours:
    found: Neighbours = {}
    nodes = _nodes(graph)
    for start, end in edges:
        if nodes.has(start) and nodes.has(end):
            found.setdefault(start, []).append(end)
    return found


def _reached(start: Value, neighbours: Neighbours) -> set[Value]:
    seen, ahead = {start}, [start]
    while ahead:
        for each in neighbours.get(ahead.pop(), ()):
            if each not in seen:
                seen.add(each)
                ahead.append(each)
    return seen


def _simple_paths(graph: Value, neighbours: Neighbours) -> Set:
    found: list[Value] = []
    ahead: list[tuple[Value, ...]] = [(each,) for each in _nodes(graph).in_order()]
    while ahead:
        path = ahead.pop()
        found.append(Sequence(path))
        ahead += [(*path, each) for each in neighbours.get(path[-1], ()) if each not in path]
    return Set(found)


def _are_connected(one: Value, other: Value, graph: Value, neighbours: Neighbours) -> bool:
    nodes = _nodes(graph)
    if not nodes.has(one) or not nodes.has(other):
        return False
    return other in _reached(one, neighbours)


# -- Graphs ------------------------------------------------------------------------------------------------------------


@GRAPHS.operator("EmptyGraph")
def empty_graph() -> Value:
    return record(node=EMPTY_SET, edge=EMPTY_SET)


def _pairs_of(nodes: SetValue) -> Tuples:
    return Tuples([nodes, nodes])


@GRAPHS.operator("IsDirectedGraph")
def is_directed(graph: Value) -> bool:
    return _is_graph(graph) and subset(apply(graph, "edge"), _pairs_of(_nodes(graph)))


@GRAPHS.operator("IsUndirectedGraph")
def is_undirected(graph: Value) -> bool:
    if not is_directed(graph):
        return False
    edges = _edges(graph)
    return all(edges.has(Sequence((end, start))) for start, end in _directed(graph))


@GRAPHS.operator("DirectedSubgraph")
def directed_subgraphs(graph: Value) -> SetValue:
    graphs = Records([("node", Subsets(_nodes(graph))), ("edge", Subsets(_edges(graph)))])
    return filtered(graphs, is_directed)


@GRAPHS.operator("UndirectedSubgraph")
def undirected_subgraphs(graph: Value) -> SetValue:
    return filtered(directed_subgraphs(graph), is_undirected)


@GRAPHS.operator("Transpose")
def transposed(graph: Value) -> Value:
    return record(edge=Set([Sequence((end, start)) for start, end in _directed(graph)]), node=apply(graph, "node"))


@GRAPHS.operator("Path")
def paths(graph: Value) -> SetValue:
    edges = _edges(graph)
    return filtered(Sequences(_nodes(graph)), lambda each: _is_path(each, lambda x, y: edges.has(Sequence((x, y)))))


def _is_path(path: Value, is_edge: Related) -> bool:
    values = path.explicit().values
    return bool(values) and all(map(is_edge, values, values[1:]))


@GRAPHS.operator("SimplePath")
def simple_paths(graph: Value) -> Set:
    return _simple_paths(graph, _neighbours(graph, _directed(graph)))


@GRAPHS.operator("AreConnectedIn")
def are_connected(one: Value, other: Value, graph: Value) -> bool:
    return _are_connected(one, other, graph, _neighbours(graph, _directed(graph)))


@GRAPHS.operator("IsStronglyConnected")
def is_strongly_connected(graph: Value) -> bool:
    neighbours = _neighbours(graph, _directed(graph))
    return all(len(_reached(each, neighbours)) == _nodes(graph).size() for each in _nodes(graph).items)


@GRAPHS.operator("ConnectionsIn")
def connections(graph: Value) -> Value:
    neighbours = _neighbours(graph, _directed(graph))
    nodes = _nodes(graph).in_order()
    reached = {each: _reached(each, neighbours) for each in nodes}
    return function({Sequence((x, y)): y in reached[x] for x, y in product(nodes, repeat=2)})


@GRAPHS.operator("IsTreeWithRoot")
def is_tree(graph: Value, root: Value) -> bool:
    if not is_directed(graph) or not _nodes(graph).has(root):
        return False
    starts = [start for start, _ in _directed(graph)]
    if any(equal(each, root) for each in starts) or len(set(starts)) < len(starts):
        return False
    return all(are_connected(each, root, graph) for each in _nodes(graph).items)


@GRAPHS.operator("GraphUnion")
def joined(one: Value, other: Value) -> Value:
    return record(node=union(_nodes(one), _nodes(other)), edge=union(_edges(one), _edges(other)))


@GRAPHS.operator("IsBipartiteWithPartitions")
def is_bipartite(graph: Value, one: Value, other: Value) -> bool:
    left, right = set_of(one, "IsBipartiteWithPartitions"), set_of(other, "IsBipartiteWithPartitions")
    if not intersection(left, right).is_empty() or not subset(_nodes(graph), union(left, right)):
        return False
    return all((left.has(x) and right.has(y)) or (left.has(y) and right.has(x)) for x, y in _directed(graph))


@GRAPHS.operator("HasCycle")
def has_cycle(graph: Value) -> bool:
    neighbours = _neighbours(graph, _directed(graph))
    return any(start in _reached(end, neighbours) for start, ends in neighbours.items() for end in ends)


@GRAPHS.operator("IsDag")
def is_acyclic(graph: Value) -> bool:
    return is_directed(graph) and not has_cycle(graph)


@GRAPHS.operator("Successors")
def successors(graph: Value, node: Value) -> Set:
    edges = _edges(graph)
    return Set([each for each in _nodes(graph).members() if edges.has(Sequence((node, each)))])


@GRAPHS.operator("Predecessors")
def predecessors(graph: Value, node: Value) -> Set:
    edges = _edges(graph)
    return Set([each for each in _nodes(graph).members() if edges.has(Sequence((each, node)))])


@GRAPHS.operator("AllSuccessors")
def all_successors(graph: Value, nodes: Value) -> Set:
    return Set([each for node in explicit(nodes, "AllSuccessors").members() for each in successors(graph, node).items])


@GRAPHS.operator("AllPredecessors")
def all_predecessors(graph: Value, nodes: Value) -> Set:
    members = explicit(nodes, "AllPredecessors").members()
    return Set([each for node in members for each in predecessors(graph, node).items])


@GRAPHS.operator("Ancestors")
def ancestors(graph: Value, node: Value) -> Set:
    return descendants(transposed(graph), node)


@GRAPHS.operator("Descendants")
def descendants(graph: Value, node: Value) -> Set:
    neighbours = _neighbours(graph, _directed(graph))
    if not _nodes(graph).has(node):
        raise wrong(node, "Ancestors and Descendants", "a node of the graph")
    return Set([each for start in neighbours.get(node, ()) for each in _reached(start, neighbours)])


@GRAPHS.operator("InDegree")
def in_degree(graph: Value, node: Value) -> int:
    return predecessors(graph, node).size()


@GRAPHS.operator("OutDegree")
def out_degree(graph: Value, node: Value) -> int:
    return successors(graph, node).size()


@GRAPHS.operator("Roots")
def roots(graph: Value) -> Set:
    return Set([each for each in _nodes(graph).members() if not in_degree(graph, each)])


@GRAPHS.operator("Leaves")
def leaves(graph: Value) -> Set:
    return Set([each for each in _nodes(graph).members() if not out_degree(graph, each)])


@GRAPHS.operator("Graphs")
def graphs_of(nodes: Value) -> SetValue:
    whole = set_of(nodes, "Graphs")
    return Records([("node", Set([whole])), ("edge", Subsets(_pairs_of(whole)))])


# -- UndirectedGraphs --------------------------------------------------------------------------------------------------


@UNDIRECTED_GRAPHS.operator("IsUndirectedGraph")
def is_graph_of_pairs(graph: Value) -> bool:
    return _has_edges(graph, (1, 2))


@UNDIRECTED_GRAPHS.operator("IsLoopFreeUndirectedGraph")
def is_loop_free(graph: Value) -> bool:
    return _has_edges(graph, (2,))


def _has_edges(graph: Value, sizes: tuple[int, ...]) -> bool:
    """Whether each edge is a set of nodes of one of these sizes."""
    if not _is_graph(graph):
        return False
    edges = [set_of(each, "an edge") for each in _edges(graph).members()]
    return all(each.size() in sizes and subset(each, _nodes(graph)) for each in edges)


@UNDIRECTED_GRAPHS.operator("UndirectedSubgraph")
def subgraphs_of_pairs(graph: Value) -> SetValue:
    return filtered(Records([("node", Subsets(_nodes(graph))), ("edge", Subsets(_edges(graph)))]), is_graph_of_pairs)


@UNDIRECTED_GRAPHS.operator("Path")
def paths_of_pairs(graph: Value) -> SetValue:
    edges = _edges(graph)
    return filtered(Sequences(_nodes(graph)), lambda each: _is_path(each, lambda x, y: edges.has(Set((x, y)))))


@UNDIRECTED_GRAPHS.operator("SimplePath")
def simple_paths_of_pairs(graph: Value) -> Set:
    return _simple_paths(graph, _neighbours(graph, _undirected(graph)))


@UNDIRECTED_GRAPHS.operator("AreConnectedIn")
def are_connected_by_pairs(one: Value, other: Value, graph: Value) -> bool:
    return _are_connected(one, other, graph, _neighbours(graph, _undirected(graph)))


@UNDIRECTED_GRAPHS.operator("ConnectedComponents")
def components(graph: Value) -> Set:
    neighbours = _neighbours(graph, _undirected(graph))
    return Set([Set(frozenset(_reached(each, neighbours))) for each in _nodes(graph).members()])


@UNDIRECTED_GRAPHS.operator("IsStronglyConnected")
def is_connected_by_pairs(graph: Value) -> bool:
    return components(graph) == Set([_nodes(graph)])


@UNDIRECTED_GRAPHS.operator("UndirectedGraphs")
def graphs_of_pairs(nodes: Value) -> SetValue:
    whole = explicit(nodes, "UndirectedGraphs")
    pairs = Set([Set(each) for each in product(whole.in_order(), repeat=2)])
    return Records([("node", Set([whole])), ("edge", Subsets(pairs))])
