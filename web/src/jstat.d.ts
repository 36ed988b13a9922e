/** The one function that is used here. */
declare module "jstat" {
  const jStat: {
    /** The regularized lower incomplete gamma function P(shape, x). */
    lowRegGamma(shape: number, x: number): number;
  };
  export default jStat;
}
