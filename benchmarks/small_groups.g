# All groups of order up to 60 as regular or smaller permutation groups, one JSON line each: gap -q -b small_groups.g
# Needs GAP with its small-groups library (Debian: gap-core, gap-smallgrp).
for n in [1 .. 60] do
  for i in [1 .. NumberSmallGroups(n)] do
    group := SmallGroup(n, i);
    name := StructureDescription(group);
    image := Image(IsomorphismPermGroup(group));
    if Size(image) <> n or IdGroup(image) <> [n, i] then Error("wrong image"); fi;
    small := Image(SmallerDegreePermutationRepresentation(image));
    if Size(small) <> n or IdGroup(small) <> [n, i] then Error("wrong image"); fi;
    small := Action(small, MovedPoints(small));
    if Size(small) <> n then small := image; fi;
    generators := MinimalGeneratingSet(group);
    epi := IsomorphismGroups(group, small);
    points := Maximum(1, LargestMovedPoint(small));
    lists := List(generators, g -> List(ListPerm(Image(epi, g), points), k -> k - 1));
    Print("{\"id\": [", n, ", ", i, "], \"name\": \"", name, "\", \"generators\": ", lists, "}\n");
  od;
od;
QUIT;
