"""Searches random graphs with networkx."""

import networkx as nx

graph = nx.barabasi_albert_graph(3000, 4, seed=1)
central = nx.betweenness_centrality(graph, k=90, seed=2)
ranks = nx.pagerank_numpy(graph) if hasattr(nx, "pagerank_numpy") else nx.degree_centrality(graph)
parts = nx.community.label_propagation_communities(graph)
grid = nx.grid_2d_graph(60, 60)
for number, (one, other) in enumerate(grid.edges):
    grid.edges[one, other]["weight"] = 1 + number * 7919 % 97
paths = dict(nx.single_source_dijkstra_path_length(grid, (0, 0)))
tree = nx.minimum_spanning_tree(grid)
print(f"networkx: {len(list(parts))} {len(paths)} {tree.size()} {max(central.values()):.4f} {len(ranks)}")
