"""The names in the files of the standard and community modules, in their order there. TLC's order of strings depends on
them, see :mod:`fencepost.tla.interning`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unit:
    """What counts of a module.

    ``words`` are the names and numbers of its file, and ``strings`` the strings of its expressions, in order.
    ``extends`` and ``instances`` are modules by name. ``inner`` are the modules inside it, which have no words of
    their own.
    """

    name: str
    words: tuple[str, ...] = ()
    strings: tuple[str, ...] = ()
    extends: tuple[str, ...] = ()
    instances: tuple[str, ...] = ()
    inner: tuple[Unit, ...] = ()


def _unit(name: str, extends: str, instances: str, words: str, strings: tuple[str, ...] = ()) -> Unit:
    return Unit(name, tuple(words.split()), strings, tuple(extends.split()), tuple(instances.split()))


UNITS: dict[str, Unit] = {
    each.name: each
    for each in (
        _unit(
            "Naturals",
            "",
            "",
            "Naturals Nat a b CHOOSE n TRUE",
        ),
        _unit(
            "Integers",
            "Naturals",
            "",
            "Integers EXTENDS Naturals Int a 0",
        ),
        _unit(
            "Reals",
            "Integers",
            "",
            "Reals EXTENDS Integers Real a b CHOOSE m Infinity i r",
            ("Reals",),
        ),
        _unit(
            "Sequences",
            "",
            "Naturals",
            "Sequences LOCAL INSTANCE Naturals Seq S UNION 1 n Nat Len s CHOOSE DOMAIN t i IF THEN ELSE Append e "
            "Head Tail CASE SubSeq m SelectSeq Test _ LET F 0 IN",
        ),
        _unit(
            "FiniteSets",
            "",
            "Naturals Sequences",
            "FiniteSets LOCAL INSTANCE Naturals Sequences IsFiniteSet S seq Seq s n 1 Len Cardinality LET CS T "
            "SUBSET IF THEN 0 ELSE CHOOSE x IN",
        ),
        _unit(
            "Bags",
            "TLC",
            "Naturals",
            "Bags EXTENDS TLC LOCAL INSTANCE Naturals IsABag B DOMAIN n Nat 0 BagToSet SetToBag S e 1 BagIn "
            "EmptyBag B1 B2 IF THEN ELSE LET IN d Sum f DSum SUBSET elt CHOOSE TRUE BagUnion UNION SubBag "
            "RemoveFromDom x y Combine BagSet i Biggest Range r s RSB BB BagOfAll F _ BagCardinality CopiesIn",
        ),
        _unit(
            "TLC",
            "",
            "Naturals Sequences FiniteSets",
            "TLC LOCAL INSTANCE Naturals Sequences FiniteSets Print out val PrintT TRUE Assert IF THEN ELSE "
            "CHOOSE v JavaTime n Nat TLCGet i TLCSet d e x f g DOMAIN Permutations S w SortSeq s Op _ LET Perm p "
            "1 Len j IN RandomElement Any ToString a b STRING TLCEval",
        ),
        _unit(
            "TLCExt",
            "",
            "TLC Integers",
            "TLCExt LOCAL INSTANCE TLC Integers AssertEq a b IF THEN PrintT ELSE AssertError err exp LET "
            "FailsEval e CHOOSE BOOLEAN TRUE TLCError s STRING IN Assert TLCGetOrDefault key defaultVal n "
            "TLCGetAndSet Op _ val oldVal v TLCSet Trace CounterExample ToTrace CE TLCModelValue str ToString "
            "TLCDefer expression TLCNoOp PickSuccessor bool TLCCache closure TLCFP var i Int TLCEvalDefinition "
            "definitionName",
            ("Assertion failed",),
        ),
        _unit(
            "Randomization",
            "",
            "Naturals FiniteSets",
            "Randomization LOCAL INSTANCE Naturals FiniteSets RandomSubset k S CHOOSE T SUBSET Cardinality "
            "RandomSetOfSubsets n TestRandomSetOfSubsets i 1 5",
        ),
        _unit(
            "Folds",
            "",
            "",
            "Folds MapThenFoldSet op _ base f choose S LET iter s SUBSET IF THEN ELSE x IN",
        ),
        _unit(
            "Functions",
            "Integers Folds",
            "",
            "Functions EXTENDS Integers Folds Restrict f S x RestrictDomain Test _ DOMAIN RestrictValues LET IN "
            "IsRestriction narrow wide Range Pointwise g T e Inverse t CHOOSE s AntiFunction IsInjective a b "
            "Injection M Surjection Bijection ExistsInjection ExistsSurjection ExistsBijection FoldFunctionOnSet "
            "op base fun indices MapThenFoldSet LAMBDA i TRUE FoldFunction SumFunctionOnSet 0 SumFunction",
        ),
        _unit(
            "FiniteSetsExt",
            "Integers FiniteSets Folds Functions",
            "",
            "FiniteSetsExt EXTENDS Integers FiniteSets Folds Functions FoldSet op _ base set MapThenFoldSet "
            "LAMBDA x s CHOOSE TRUE SumSet 0 ProductSet y 1 ReduceSet acc MapThenSumSet FlattenSet S UNION "
            "SymDiff A B Quantify P Cardinality kSubset k SUBSET Max Min Choices Sets LET ChoiceFunction Ts f T "
            "IN Range ChooseUnique",
        ),
        _unit(
            "SequencesExt",
            "Sequences Naturals FiniteSets FiniteSetsExt Folds Functions Bags TLC",
            "",
            "SequencesExt EXTENDS Sequences Naturals FiniteSets FiniteSetsExt Folds Functions Bags TLC ToSet s i "
            "DOMAIN ToBag x Range Cardinality SetToSeq S CHOOSE f 1 IsInjective SetToSeqs LET D IN j SetToSortSeq "
            "op _ SortSeq SetToAllKPermutations UNION SUBSET TupleOf set n SeqOf m 0 BoundedSeq Contains e Len "
            "IsSorted Reverse Remove SelectSeq LAMBDA t ReplaceAll old new IF THEN ELSE SelectInSeq seq Test I "
            "Min SelectInSubSeq from to SubSeq SelectLastInSeq Max SelectLastInSubSeq InsertAt ReplaceAt EXCEPT "
            "RemoveAt RemoveFirst v RemoveFirstMatch Cons elt Snoc Append Front Last IsPrefix IsStrictPrefix "
            "IsSuffix IsStrictSuffix Prefixes l CommonPrefixes P prefix LongestCommonPrefix longest other "
            "Suffixes SeqMod a b FoldSeq base FoldFunction FoldLeft MapThenFoldSet y FoldRight FoldLeftDomain "
            "FoldRightDomain FlattenSeq seqs flatten Zip Interleave CASE u SubSeqs AllSubSeqs IndexFirstSubSeq "
            "last ReplaceSubSeqAt r suffix ReplaceFirstSubSeq ReplaceAllSubSeqs z match comp p q R T g OTHER",
        ),
        _unit(
            "BagsExt",
            "",
            "Bags Integers Folds",
            "BagsExt LOCAL INSTANCE Bags Integers Folds BagAdd B x IF DOMAIN THEN e 1 ELSE BagRemove BagRemoveAll "
            "MapThenFoldBag op _ base f choose LET handle pow n Nat 0 IN MapThenFoldSet LAMBDA S CHOOSE TRUE "
            "FoldBag SumBag y ProductBag",
        ),
        _unit(
            "Bitwise",
            "",
            "Integers",
            "Bitwise LOCAL INSTANCE Integers RECURSIVE And _ x y n m LET exp 2 IN IF 0 THEN ELSE 1 Or xdm ydm Xor "
            "NotR Not a shiftR pos odd z",
        ),
        _unit(
            "Combinatorics",
            "Naturals",
            "",
            "Combinatorics EXTENDS Naturals factorial n Nat IF 0 THEN 1 ELSE choose k",
        ),
        _unit(
            "DyadicRationals",
            "",
            "FiniteSets Integers Sequences FiniteSetsExt TLC",
            "DyadicRationals LOCAL INSTANCE FiniteSets Integers Sequences FiniteSetsExt TLC Divides p q d 1 "
            "Divisors GCD n m Max Rational num den Reduce LET gcd IN IF THEN ELSE IsDyadicRational r i 0 2 Zero "
            "One Add lcn qq pp Half PrettyPrint ToString",
            ("0", "1", "/"),
        ),
        _unit(
            "Relation",
            "Naturals FiniteSets",
            "",
            "Relation EXTENDS Naturals FiniteSets IsReflexive R S x IsReflexiveUnder op _ p 1 2 IsIrreflexive "
            "IsIrreflexiveUnder IsSymmetric y IsSymmetricUnder IsAntiSymmetric IsAntiSymmetricUnder IsAsymmetric "
            "IsAsymmetricUnder IsTransitive z IsTransitiveUnder IsStrictlyPartiallyOrdered "
            "IsStrictlyPartiallyOrderedUnder IsPartiallyOrdered IsPartiallyOrderedUnder IsStrictlyTotallyOrdered "
            "IsStrictlyTotallyOrderedUnder IsTotallyOrdered IsTotallyOrderedUnder TransitiveClosure LET N "
            "Cardinality trcl n Nat IF 0 THEN ELSE IN ReflexiveTransitiveClosure IsConnected rtrcl",
        ),
        _unit(
            "Graphs",
            "Naturals Sequences FiniteSets SequencesExt Relation",
            "",
            "Graphs EXTENDS Naturals Sequences FiniteSets SequencesExt Relation IsDirectedGraph G node edge "
            "DirectedSubgraph H SUBSET Transpose e 2 1 IsUndirectedGraph UndirectedSubgraph Path p Seq i Len "
            "SimplePath j AreConnectedIn m n IsStronglyConnected ConnectionsIn LET C N IF THEN ELSE u CHOOSE TRUE "
            "Cu IN IsTreeWithRoot r f GraphUnion IsBipartiteWithPartitions U V HasCycle IsDag Successors "
            "AllSuccessors S UNION Predecessors AllPredecessors Ancestors EdgeRelation TransitiveClosure "
            "Descendants InDegree Cardinality OutDegree Roots Leaves EmptyGraph",
        ),
        _unit(
            "UndirectedGraphs",
            "",
            "Naturals Sequences SequencesExt FiniteSets Folds Functions",
            "UndirectedGraphs LOCAL INSTANCE Naturals Sequences SequencesExt FiniteSets Folds Functions "
            "IsUndirectedGraph G node edge e a b IsLoopFreeUndirectedGraph UndirectedSubgraph H SUBSET Path p Seq "
            "i 1 Len SimplePath j AreConnectedIn m n ConnectedComponents LET IsCC S IN T IsStronglyConnected s t",
        ),
        _unit(
            "VectorClocks",
            "Naturals Sequences Functions",
            "",
            "VectorClocks EXTENDS Naturals Sequences Functions LOCAL concurrent v1 v2 i j DOMAIN happenedBefore "
            "IsCausalOrder log clock _ 1 Len LET Fill c D d IF THEN ELSE 0 vci vcj IN CausalOrder node domain "
            "CHOOSE newlog f Range",
        ),
        _unit(
            "Quorum",
            "",
            "",
            "Quorum QuorumSystem S QS SUBSET Q1 Q2",
        ),
        _unit(
            "Json",
            "",
            "Sequences FiniteSets TLC",
            "Json LOCAL INSTANCE Sequences FiniteSets TLC IsSequence F D TRUE FALSE ToJsonKeyValue d ToString "
            "RECURSIVE ToJsonObjectString _ LET CHOOSE IN IF DOMAIN THEN ELSE ToJsonArrayString ToJsonString "
            "IsFiniteSet ToJson value ToJsonArray ToJsonObject JsonSerialize absoluteFilename JsonDeserialize val "
            "ndJsonSerialize ndJsonDeserialize",
            (":", "{", "}", ", ", "[", "]", "{}", "[]"),
        ),
        _unit(
            "CSV",
            "",
            "TLC Integers",
            "CSV LOCAL INSTANCE TLC Integers CSVWrite template val file TRUE CSVWriteRecord record delim headers "
            "CSVRead columns delimiter CSVRecords CHOOSE n Nat",
        ),
        _unit(
            "IOUtils",
            "",
            "TLC Integers Sequences SequencesExt",
            "IOUtils LOCAL INSTANCE TLC Integers Sequences SequencesExt IOSerialize val absoluteFilename compress "
            "TRUE IODeserialize compressed CHOOSE Serialize value dest options r exitValue Int stdout STRING "
            "stderr Deserialize src IOExec command IOEnvExec env IOExecTemplate commandTemplate parameters "
            "IOEnvExecTemplate IOEnv atoi str i ToString zeroPadN n width LET s padLen Len zeros 1 IN FoldLeft "
            "LAMBDA acc z",
            ("0", ""),
        ),
        _unit(
            "Statistics",
            "Naturals",
            "",
            "Statistics EXTENDS Naturals ChiSquare expected actual alpha TRUE",
        ),
        _unit(
            "GraphViz",
            "",
            "",
            "GraphViz DotDiGraph G VL _ EL TRUE",
        ),
        _unit(
            "SVG",
            "",
            "Naturals Sequences Integers TLC FiniteSets IOUtils",
            "SVG LOCAL INSTANCE Naturals Sequences Integers TLC FiniteSets Merge r1 r2 LET D1 DOMAIN D2 IN k IF "
            "THEN ELSE SVGElem _name _attrs _children _innerText name attrs children innerText Line x1 y1 x2 y2 "
            "svgAttrs ToString Circle cx cy r Rect x y w h width height Text text Image href Group Svg SVGDoc vbX "
            "vbY vbW vbH SVGElemToString elem TRUE NodeOfRingNetwork n m 0 NodesOfDirectedMultiGraph nodes edges "
            "options CHOOSE f Int PointOnLine from to segment SVGSerialize svg frameNamePrefix frameNumber IO "
            "IOUtils Serialize zeroPadN 3 format charset openOptions",
            (
                "line",
                "",
                "circle",
                "rect",
                "text",
                "xlink:href",
                "x",
                "y",
                "width",
                "height",
                "image",
                "g",
                "svg",
                "xmlns:xlink",
                "http://www.w3.org/1999/xlink",
                "xmlns",
                "http://www.w3.org/2000/svg",
                "viewBox",
                " ",
                ".svg",
                "TXT",
                "UTF-8",
                "WRITE",
                "CREATE",
                "TRUNCATE_EXISTING",
            ),
        ),
        _unit(
            "Toolbox",
            "",
            "Naturals FiniteSets TLC",
            "Toolbox LOCAL INSTANCE Naturals FiniteSets TLC _TETrace CHOOSE f Nat 0 STRING TRUE _TETraceLength "
            "Cardinality DOMAIN _TEPosition IF TLCGet THEN ELSE 1",
            ("level",),
        ),
        # The files of these differ from one release of the proof system to the next.
        _unit("TLAPS", "", "", "TLAPS"),
        _unit("NaturalsInduction", "Integers", "", "NaturalsInduction"),
        _unit("WellFoundedInduction", "NaturalsInduction", "", "WellFoundedInduction"),
        _unit("FunctionTheorems", "Functions Integers FiniteSets", "", "FunctionTheorems"),
        _unit("FiniteSetTheorems", "FiniteSets Integers Functions WellFoundedInduction", "", "FiniteSetTheorems"),
        _unit("SequenceTheorems", "Sequences Functions", "", "SequenceTheorems"),
        _unit("BagsTheorems", "Bags", "", "BagsTheorems"),
        _unit("FiniteSetsExtTheorems", "FiniteSetsExt FiniteSets Integers", "", "FiniteSetsExtTheorems"),
        _unit(
            "SequencesExtTheorems",
            "Sequences SequencesExt Functions Integers WellFoundedInduction",
            "",
            "SequencesExtTheorems",
        ),
        _unit("FoldsTheorems", "Folds FiniteSets", "", "FoldsTheorems"),
        _unit("GraphTheorems", "Graphs Sequences", "", "GraphTheorems"),
        _unit("QuorumTheorems", "Quorum Integers FiniteSets", "", "QuorumTheorems"),
    )
}
